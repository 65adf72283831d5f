#include "predict/model.h"

#include <cmath>

#include "base/check.h"

namespace plait::predict {
namespace {

// Forward once, and backward, which repeats forward and does two and a half times as much.
constexpr double kAttentionTimes = 3.5;
constexpr double kAttentionShare = 0.5;  // of a product's rate

// How often activations are read or written, forward and backward together.
constexpr double kRowPasses = 24;   // a block's rows; each rank has its shard
constexpr double kInnerPasses = 8;  // the inner rows, between up and down

base::Nanoseconds nanoseconds(double seconds) {
  return static_cast<base::Nanoseconds>(std::llround(seconds * 1e9));
}

}  // namespace

plan::BlockWidths widths_of(const Step& step, int ranks) {
  const plan::BlockWidths widths = plan::widths_of(*step.model);
  return step.scale == 1 ? widths : plan::scaled(widths, step.scale, ranks);
}

std::vector<BlockLayer> predict_block(const Machine& machine, const Step& step, const Plan& plan) {
  std::vector<BlockLayer> layers;
  for (const plan::LinearLayer& layer : plan::linear_layers(widths_of(step, machine.ranks))) {
    LayerProblem problem = step.layers;
    problem.kind = layer.kind;
    problem.rows = step.tokens;
    problem.inputs = layer.in;
    problem.outputs = layer.out;
    layers.push_back({.layer = layer, .times = predict(machine, problem, plan)});
  }
  return layers;
}

Rest rest_of(const Machine& machine, const Step& step) {
  const plan::Model& model = *step.model;
  const auto ranks = static_cast<double>(machine.ranks);
  const auto blocks = static_cast<double>(model.layers);
  const auto tokens = static_cast<double>(step.tokens);
  const plan::BlockWidths widths = widths_of(step, machine.ranks);
  const auto hidden = static_cast<double>(widths.hidden);
  const auto inner = static_cast<double>(widths.ffn * (widths.gated ? 2 : 1));
  const auto size = static_cast<double>(size_of(step.layers.dtype));
  const double rate = machine.device.flops();
  // Two products, each with half of the sequence, because a token attends only to earlier ones.
  const double attention =
      2 * 2 * tokens * static_cast<double>(step.sequence) / 2 * hidden / ranks * kAttentionTimes;
  // If rows are not sharded between layers, every rank reads and writes all of them.
  const double row_ranks = step.layers.sequence_parallel ? ranks : 1;
  const double passes =
      tokens * size * (kRowPasses * hidden / row_ranks + kInnerPasses * inner / ranks);
  const double head = 3 * 2 * tokens * hidden * static_cast<double>(model.vocab) / ranks;
  return {.attention = nanoseconds(blocks * attention / (rate * kAttentionShare)),
          .passes = nanoseconds(blocks * passes / machine.device.memory()),
          .head = nanoseconds(head / rate)};
}

std::string describe_rest() {
  return base::sentence("the rest of a step: attention at ", 100 * kAttentionShare,
                        " % of a product's rate, ", kRowPasses,
                        " reads or writes of a block's rows\nand ", kInnerPasses,
                        " of the rows between up and down, and the head's products; no optimizer, "
                        "no other parallelism");
}

}  // namespace plait::predict
