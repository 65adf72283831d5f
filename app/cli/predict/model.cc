// plait predict MODEL: predicts a transformer's parallel layers, forward and backward, and the gain
// of overlap for a whole training step.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/output_files.h"
#include "cli/predict/predictions.h"
#include "cli/predict/report.h"
#include "cli/problem_options.h"
#include "cli/table.h"
#include "cli/values.h"
#include "measure/progress.h"
#include "predict/model.h"

namespace plait::cli {
namespace {

constexpr const char* kPurpose =
    "Predicts a training step of a model whose layers the ranks share (tensor parallel). Modelled\n"
    "ranks run plait's own layers, forward and backward, with every plan; the rest of the step is\n"
    "estimated by simple formulas. Nothing is measured or multiplied.";

constexpr const char* kExamples =
    "Exit status: 0 done; 1 a file can't be written; 2 wrong usage.\n\n"
    "Examples:\n"
    "  plait predict llama2-70b --tp 8 --device ascend-910b --link hccs\n"
    "  plait predict bloom-7b --tp 8 --tokens 8192 --seq 2048 --device a100\n";

// The gain of a whole training step at TP 8 that MindSpeed CoC's makers report.
struct Published {
  std::string_view model;
  double gain;
};
constexpr std::array<Published, 3> kPublished = {{
    {"bloom-7b", 0.0320},
    {"bloom-176b", 0.0547},
    {"llama2-70b", 0.0785},
}};

struct ModelPrediction {
  predict::Step step;
  predict::Machine machine = {};
  std::vector<Plan> plans = {};                               // the serial one first
  std::vector<std::vector<predict::BlockLayer>> blocks = {};  // by plan
  predict::Rest rest = {};

  // The time of all layers of a block, and of the whole step.
  double layers(std::size_t plan) const {
    double sum = 0;
    for (const predict::BlockLayer& one : blocks[plan])
      sum += static_cast<double>(one.times.both());
    return sum;
  }
  double whole(std::size_t plan) const {
    return layers(plan) * static_cast<double>(step.model->layers) + static_cast<double>(rest.all());
  }

  // Each layer with the best plan for it, as a table of plans per shape would choose.
  double best_layers() const {
    double sum = 0;
    for (std::size_t layer = 0; layer < blocks.front().size(); ++layer) {
      const auto time = [&](auto part) {
        auto best = static_cast<double>(blocks.front()[layer].times.*part);
        for (const auto& block : blocks)
          best = std::min(best, static_cast<double>(block[layer].times.*part));
        return best;
      };
      sum += time(&predict::LayerTimes::forward) + time(&predict::LayerTimes::backward);
    }
    return sum;
  }
  double best_whole() const {
    return best_layers() * static_cast<double>(step.model->layers) +
           static_cast<double>(rest.all());
  }
};

std::string show_gain(double serial, double time) {
  return fmt::format("{:+.2f} %", 100 * (serial / time - 1));
}

// Only for the number of ranks that was published.
std::optional<double> published_gain(const ModelPrediction& prediction) {
  constexpr int kRanks = 8;
  if (prediction.machine.ranks != kRanks) return std::nullopt;
  for (const Published& one : kPublished) {
    if (one.model == prediction.step.model->name && prediction.step.scale == 1) return one.gain;
  }
  return std::nullopt;
}

std::string show_published(const ModelPrediction& prediction) {
  const auto gain = published_gain(prediction);
  if (!gain) return {};
  return fmt::format(
      "\nFor comparison: MindSpeed CoC's makers report {:+.2f} % of a whole step on Ascend devices "
      "with 8 ranks;\nbatch, sequence and baseline are not stated.\n",
      100 * *gain);
}

std::string show_text(const ModelPrediction& prediction) {
  const predict::Step& step = prediction.step;
  std::string text = fmt::format(
      "{}\n\n{}{}  {} tokens in sequences of {}, {}, wire {}\n{}{}\n\n", kItIsAPrediction,
      step.model->name, step.scale == 1 ? "" : fmt::format(", widths x {:g},", step.scale),
      step.tokens, step.sequence,
      step.layers.sequence_parallel ? "sequence parallel" : "not sequence parallel",
      name(step.layers.wire), show_assumptions(prediction.machine), predict::describe_rest());
  Table layers({"a block's layers", "in", "out", "plan", "forward", "backward", "speed-up"},
               /*left=*/1);
  for (std::size_t layer = 0; layer < prediction.blocks.front().size(); ++layer) {
    const auto serial = static_cast<double>(prediction.blocks.front()[layer].times.both());
    for (std::size_t plan = 0; plan < prediction.plans.size(); ++plan) {
      const predict::BlockLayer& one = prediction.blocks[plan][layer];
      layers.add({fmt::format("{} ({})", one.layer.name, name(one.layer.kind)),
                  std::to_string(one.layer.in), std::to_string(one.layer.out),
                  name(prediction.plans[plan]), show_time(static_cast<double>(one.times.forward)),
                  show_time(static_cast<double>(one.times.backward)),
                  fmt::format("{:.3f}", serial / static_cast<double>(one.times.both()))});
    }
  }
  Table steps({"a step", "layers", "rest", "whole", "gain"}, /*left=*/1);
  const double serial = prediction.whole(0);
  const auto blocks = static_cast<double>(step.model->layers);
  const std::string rest = show_time(static_cast<double>(prediction.rest.all()));
  for (std::size_t plan = 0; plan < prediction.plans.size(); ++plan) {
    steps.add({name(prediction.plans[plan]), show_time(blocks * prediction.layers(plan)), rest,
               show_time(prediction.whole(plan)), show_gain(serial, prediction.whole(plan))});
  }
  steps.add({"each layer's best", show_time(blocks * prediction.best_layers()), rest,
             show_time(prediction.best_whole()), show_gain(serial, prediction.best_whole())});
  return text + layers.text() + '\n' + steps.text() + show_published(prediction);
}

nlohmann::ordered_json show_json(const ModelPrediction& prediction) {
  const auto ms = [](double nanoseconds) { return nanoseconds * 1e-6; };
  Json plans = Json::array();
  for (std::size_t plan = 0; plan < prediction.plans.size(); ++plan) {
    Json layers = Json::array();
    for (const predict::BlockLayer& one : prediction.blocks[plan]) {
      layers.push_back({{"layer", one.layer.name},
                        {"kind", name(one.layer.kind)},
                        {"in", one.layer.in},
                        {"out", one.layer.out},
                        {"forward_ms", ms(static_cast<double>(one.times.forward))},
                        {"backward_ms", ms(static_cast<double>(one.times.backward))}});
    }
    plans.push_back({{"plan", name(prediction.plans[plan])},
                     {"layers", std::move(layers)},
                     {"step_ms", ms(prediction.whole(plan))},
                     {"gain", prediction.whole(0) / prediction.whole(plan) - 1}});
  }
  const predict::LayerProblem& options = prediction.step.layers;
  const auto published = published_gain(prediction);
  Json assumptions = assumptions_json(prediction.machine);
  assumptions["rest"] = predict::describe_rest();
  return {{"prediction", true},
          {"model", prediction.step.model->name},
          {"scale", prediction.step.scale},
          {"tp", prediction.machine.ranks},
          {"tokens", prediction.step.tokens},
          {"sequence", prediction.step.sequence},
          {"dtype", name(options.dtype)},
          {"wire", name(options.wire)},
          {"sequence_parallel", options.sequence_parallel},
          {"column_backward", options.column_backward},
          {"recompute_all_gather", options.recompute_all_gather},
          {"device", prediction.machine.device.name},
          {"rest_ms", ms(static_cast<double>(prediction.rest.all()))},
          {"plans", std::move(plans)},
          {"best_gain", prediction.whole(0) / prediction.best_whole() - 1},
          {"published_gain", published ? Json(*published) : Json()},
          {"assumptions", std::move(assumptions)}};
}

void predict_blocks(ModelPrediction& prediction) {
  measure::Progress progress("predicting, plan");
  for (const Plan& plan : prediction.plans) {
    prediction.blocks.push_back(predict_block(prediction.machine, prediction.step, plan));
    progress.show(std::ssize(prediction.blocks), std::ssize(prediction.plans));
  }
}

}  // namespace

int predict_model(const plan::Model& model, Words words) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 20;
  // Predicting so many ranks takes minutes; four times as many would take hours.
  constexpr int kMostRanks = 256;
  ModelPrediction prediction = {.step = {.model = &model, .tokens = 8192, .sequence = 0}};
  predict::Step& step = prediction.step;
  MachineOptions machine;
  LayerOptions layers;
  PlanOptions plans;
  OutputFiles files;
  const std::string verb = "predict " + std::string(model.name);
  Options options({.verb = verb, .usage = "[OPTIONS]", .purpose = kPurpose, .examples = kExamples});
  add_options(options, machine, "--tp");
  options.add("--tokens", whole(1, kMostTokens), step.tokens,
              "tokens of a micro-batch (default: 8192)");
  options.add("--seq|--sequence", whole(1, kMostTokens), step.sequence,
              "tokens of a sequence (default: 4096, or all tokens if fewer)");
  options.add("--scale", kScale, step.scale,
              "factor for the model's widths, as in plait bench model (default: 1)");
  options.add("--wire", kWire, step.layers.wire,
              "dtype in which partial sums are sent (default: bf16)");
  add_options(options, layers);
  add_options(options, plans);
  add_json_option(options, files);
  if (!options.parse_all(words)) return kDone;
  if (step.sequence == 0) step.sequence = std::min<std::int64_t>(4096, step.tokens);
  PLAIT_CHECK(step.sequence <= step.tokens, "--seq ", step.sequence, " is longer than --tokens ",
              step.tokens);
  check(layers);
  step.layers.sequence_parallel = !layers.no_sequence_parallel;
  step.layers.column_backward = layers.column_backward;
  step.layers.recompute_all_gather = !layers.keep_gathered;
  prediction.machine = machine_of(machine);
  PLAIT_CHECK(machine.ranks <= kMostRanks, "--tp ", machine.ranks, ": at most ", kMostRanks,
              " ranks can be predicted");
  prediction.plans = read_plans(Operator::matmul_all_reduce, plans);
  check_writable(files);
  prediction.rest = rest_of(prediction.machine, step);
  predict_blocks(prediction);
  if (!files.silences()) answer(show_text(prediction));
  files.write_json(show_json(prediction));
  return kDone;
}

}  // namespace plait::cli
