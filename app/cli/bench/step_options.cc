#include "cli/bench/step.h"

#include "base/check.h"
#include "base/text.h"
#include "cli/as_ranks.h"
#include "cli/effort_options.h"
#include "cli/options.h"
#include "cli/problem_options.h"
#include "cli/values.h"

namespace plait::cli {
namespace {

constexpr std::int64_t kMostLayers = 1000;
constexpr double kMostStandIn = 10;

constexpr const char* kLayerPurpose =
    "Measures one linear layer, forward and backward, in every schedule. The ranks share the\n"
    "outputs of a column layer, and the inputs of a row layer. The same products without\n"
    "communication are measured too; the difference is exposed communication.";

constexpr const char* kModelPurpose =
    "Measures the linear layers of a model's blocks, forward and backward, in every schedule,\n"
    "sharded as in tensor parallelism. The same products without communication are measured too;\n"
    "the difference is exposed communication, and removing all of it is the most that Amdahl's\n"
    "law allows. Attention and norms are left out, or replaced by waiting (--stand-in). With\n"
    "--decode, the layers run forward only, as in a loop that generates tokens, and a profile of\n"
    "the fastest plan follows.";

constexpr const char* kLayerExamples =
    "Exit status: 0 done; 1 a result's bits differ or a file can't be written; 2 wrong usage;\n"
    "3 a rank was lost.\n\n"
    "Examples:\n"
    "  plait bench layer column --n 8192 --k 8192 --link 10gbit,5us\n"
    "  plait bench layer row --m 2048 --n 4096 --k 14336 --link share=0.3\n";

constexpr const char* kModelExamples =
    "Exit status: 0 done; 1 a result's bits differ or a file can't be written; 2 wrong usage;\n"
    "3 a rank was lost.\n\n"
    "Examples:\n"
    "  plait bench model llama2-70b --link share=0.12\n"
    "  plait bench model bloom-7b --blocks 2 --scale 0.5 --seq 2048 --link 25gbit,5us\n"
    "  plait bench model llama2-7b --stand-in 0.3 --html step.html\n"
    "  plait bench model llama2-7b --decode 1\n";

measure::RequestedShareLink read_link_or_share(std::string_view option, const std::string& text) {
  constexpr std::string_view kShare = "share=";
  if (text.empty()) return {};
  PLAIT_CHECK(!text.starts_with("ratio="), option, " ", text,
              ": ratio= applies to operators; training steps take share=, as in share=0.12");
  if (!text.starts_with(kShare)) return {.link = parse_link(text)};
  const auto share = base::parse_number(std::string_view(text).substr(kShare.size()));
  PLAIT_CHECK(share && *share > 0 && *share < 1, option, " ", text,
              ": the share must be a number between 0 and 1");
  return {.share = *share};
}

// A reader of numbers from 0.
auto up_to(double most) {
  return [=](std::string_view option, const std::string& text) {
    const auto number = base::parse_number(text);
    PLAIT_CHECK(number && *number >= 0 && *number <= most, option, ' ', text,
                " is not between 0 and ", most);
    return *number;
  };
}

// Options of layers and of models that are not those of a StepSetup.
struct SharedOptions {
  LayerOptions layers = {};
  RankOptions ranks = {};
};

void add_step_options(Options& options, StepOptions& step, SharedOptions& shared) {
  constexpr const char* kUsualPlans = "pipelined parts=4;pipelined parts=8;fused";
  step.plans = read_plan_list("--plan", kUsualPlans);
  options.add("-d,--dtype", kDtype, step.dtype,
              "dtype of activations and weights: f32, bf16 (default) or f16");
  options.add("--grad", kDtype, step.grad_weight,
              "dtype of the accumulated weight gradients (default: f32)");
  options.add("--wire", kWire, step.wire, "dtype in which partial sums are sent (default: f32)");
  add_options(options, shared.layers);
  options.add("-l,--link", "LINK", step.link, read_link_or_share,
              "emulated link between all ranks, such as 25gbit,5us; share=0.12: a\n"
              "link over which communication is that share of the serial step");
  options.add("--plan", "PLAN[;PLAN...]", step.plans, read_plan_list,
              "plans besides serial (default:\npipelined parts=4;pipelined parts=8;fused)");
  add_options(options, step.files);
}

// A step that decodes has one token of each sequence. Its weights have their full widths, because
// smaller ones may stay in a cache from one step to the next.
void set_decoding(StepOptions& step, const Options& options) {
  for (const char* other : {"--seq", "--batch", "--grad", "--keep-gathered", "--column-backward"}) {
    PLAIT_CHECK(!options.is_given(other), "--decode cannot be combined with ",
                options.as_given(other));
  }
  step.decodes = true;
  step.sequence_parallel = false;
  step.sequence = 1;
  if (!options.is_given("--scale")) step.scale = 1;
}

// `option` is the one for the number of ranks.
void finish(StepOptions& step, const SharedOptions& shared, const char* option) {
  check(shared.layers);
  step.sequence_parallel = !shared.layers.no_sequence_parallel;
  step.keep_gathered = shared.layers.keep_gathered;
  step.column_backward = shared.layers.column_backward;
  step.ranks = read_ranks(option, shared.ranks.ranks, shared.ranks.transport);
  step.transport = shared.ranks.transport;
  step.threads = shared.ranks.threads;
  check_distinct(step.files);
}

}  // namespace

std::optional<StepOptions> read_layer_options(Words words) {
  StepOptions step;
  step.tokens = 1024;
  plan::LinearLayer layer = {.name = "", .kind = plan::LinearKind::column, .in = 0, .out = 0};
  SharedOptions shared;
  Options options({.verb = "bench layer",
                   .usage = "column|row --n N --k K [OPTIONS]",
                   .purpose = kLayerPurpose,
                   .examples = kLayerExamples});
  options.offer_operands({"column", "row"});
  options.add("--m|-m", size("M"), step.tokens, "tokens of all ranks together (default: 1024)");
  options.add("--n|-n", size("N"), layer.out, "outputs of the whole layer");
  options.add("--k|-k", size("K"), layer.in, "inputs of the whole layer");
  add_options(options, shared.ranks);
  add_step_options(options, step, shared);
  add_options(options, step.effort, "1");
  if (asks_for_help(words)) return options.parse(words), std::nullopt;
  PLAIT_CHECK(!words.empty() && (words[0] == "column" || words[0] == "row"),
              "the kind of layer is missing: column or row (plait bench layer --help)");
  if (!options.parse_all(words.subspan(1))) return std::nullopt;
  PLAIT_CHECK(layer.in > 0 && layer.out > 0,
              "--n and --k, the layer's outputs and inputs, are required");
  finish(step, shared, "--ranks");
  layer.name = words[0];
  if (words[0] == "row") {
    layer.kind = plan::LinearKind::row;
    PLAIT_CHECK(!step.keep_gathered,
                "--keep-gathered applies to column layers, and this is a row layer");
    PLAIT_CHECK(!step.column_backward,
                "--column-backward applies to column layers, and this is a row layer");
  }
  step.linears = {layer};
  return step;
}

std::optional<StepOptions> read_model_options(Words words) {
  StepOptions step;
  step.scale = 0.25;
  step.sequence = 1024;
  std::int64_t batch = 1;
  std::int64_t decode = 0;
  SharedOptions shared;
  Options options({.verb = "bench model",
                   .usage = "MODEL [OPTIONS]",
                   .purpose = kModelPurpose,
                   .examples = kModelExamples});
  options.offer_operands(model_words());
  options.add("--blocks|--layers", whole(1, kMostLayers), step.layers,
              "number of blocks (default: 1)");
  options.add("--scale", "S", step.scale, up_to(1),
              "factor for the model's widths, which are then rounded to whole\n"
              "panels on each rank; the result is printed (default: 0.25, or 1\n"
              "with --decode)");
  options.add("--seq", size("TOKENS"), step.sequence, "tokens of a sequence (default: 1024)");
  options.add("--batch", whole(1, 4096, "B"), batch, "sequences of a step (default: 1)");
  options.add("--decode", whole(1, 4096, "ROWS"), decode,
              "measure steps that generate tokens: forward only, with so many rows\n"
              "(one of each sequence), and no sequence parallelism");
  options.add("--stand-in", "X", step.stand_in, up_to(kMostStandIn),
              "wait, in place of attention and norms, X times as long as the\n"
              "products take (default: 0)");
  add_options(options, shared.ranks, "--tp,--ranks");
  add_step_options(options, step, shared);
  add_options(options, step.effort, "3");
  if (asks_for_help(words)) return options.parse(words), std::nullopt;
  PLAIT_CHECK(!words.empty(), "the model is missing: ", plan::model_names(),
              " (plait bench model --help)");
  const plan::Model& model = read_model_name(words[0]);
  if (!options.parse_all(words.subspan(1))) return std::nullopt;
  finish(step, shared, "--tp");
  if (decode > 0) set_decoding(step, options);
  step.model = words[0];
  PLAIT_CHECK(step.scale > 0, "--scale ", options.typed("--scale"), " is not above 0");
  step.layers_of_model = static_cast<int>(model.layers);
  step.tokens = step.sequence * (decode > 0 ? decode : batch);
  PLAIT_CHECK(step.tokens <= kLargestSize, "--seq ", step.sequence, " --batch ", batch, " give ",
              step.tokens, " tokens; at most ", kLargestSize, " are possible");
  const plan::BlockWidths widths = plan::scaled(plan::widths_of(model), step.scale, step.ranks);
  step.linears = plan::linear_layers(widths);
  step.scale = static_cast<double>(widths.hidden) / static_cast<double>(model.hidden);
  return step;
}

}  // namespace plait::cli
