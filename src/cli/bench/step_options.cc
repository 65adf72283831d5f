#include "cli/bench/step_options.h"

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "base/text.h"
#include "cli/as_ranks.h"
#include "cli/options.h"
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
    "law allows. Attention and norms are left out, or replaced by waiting (--stand-in).";

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
    "  plait bench model bloom-7b --layers 2 --scale 0.5 --seq 2048 --link 25gbit,5us\n"
    "  plait bench model llama2-7b --stand-in 0.3 --html step.html\n";

// The arguments as typed.
struct Args {
  std::string m = "1024";
  std::string n = {};
  std::string k = {};
  std::string layers = "1";
  std::string scale = "0.25";
  std::string seq = "1024";
  std::string batch = "1";
  std::string dtype = "bf16";
  std::string grad = "f32";
  std::string wire = "f32";
  bool all_rows = false;
  bool keep_gathered = false;
  bool column_backward = false;
  std::string stand_in = "0";
  std::string ranks = {};
  std::string transport = {};
  std::string link = {};
  std::string threads = {};
  std::string plans = "pipelined parts=4;pipelined parts=8;fused";
  std::string repeat = {};
  std::string seconds = "3";
  OutputFiles files = {};
};

void add_common_options(Options& options, Args& args) {
  options.add("-d,--dtype", "DTYPE", args.dtype,
              "dtype of activations and weights: f32, bf16 (default) or f16");
  options.add("--grad", "DTYPE", args.grad,
              "dtype of the accumulated weight gradients (default: f32)");
  options.add("--wire", "DTYPE", args.wire, "dtype in which partial sums are sent (default: f32)");
  options.add_flag("--no-sequence-parallel", args.all_rows,
                   "keep all tokens on every rank between the layers");
  options.add_flag(
      "--keep-gathered", args.keep_gathered,
      "keep the rows that column layers gather in forward\n(recompute_all_gather=false)");
  options.add_flag("--column-backward", args.column_backward,
                   "use an operator for the input gradient of column layers");
  options.add("-l,--link", "LINK", args.link,
              "emulated link between all ranks, such as 25gbit,5us; share=0.12: a\n"
              "link over which communication is that share of the serial step");
  options.add("-t,--transport", "NAME", args.transport,
              "shm (default), threads or mpi; see plait info");
  options.add("--threads", "T", args.threads,
              "threads of each rank (default: its share of the cores)");
  options.add("--plan", "PLAN[;PLAN...]", args.plans,
              "plans besides serial (default: pipelined parts=4;\npipelined parts=8;fused)");
  options.add("-r,--repeat", "N", args.repeat, "number of repetitions (default: set by --seconds)");
  options.add("-s,--seconds", "S", args.seconds,
              "time to measure each row of the table, for at least five\n"
              "repetitions (default: " +
                  args.seconds + ")");
  add_options(options, args.files);
}

measure::RequestedShareLink read_link(const std::string& text) {
  constexpr std::string_view kShare = "share=";
  if (text.empty()) return {};
  PLAIT_CHECK(!text.starts_with("ratio="), "--link ", text,
              ": ratio= applies to operators; training steps take share=, as in share=0.12");
  if (!text.starts_with(kShare)) return {.link = parse_link(text)};
  const auto share = base::parse_number(std::string_view(text).substr(kShare.size()));
  PLAIT_CHECK(share && *share > 0 && *share < 1, "--link ", text,
              ": the share must be a number between 0 and 1");
  return {.share = *share};
}

std::vector<Plan> read_plans(const std::string& text) {
  std::vector<Plan> plans = {{.schedule = Schedule::serial}};
  for (const std::string_view word : base::split(text, ';')) {
    const Plan plan = parse_plan(word);
    if (std::find(plans.begin(), plans.end(), plan) == plans.end()) plans.push_back(plan);
  }
  return plans;
}

StepOptions understand(const Args& args) {
  StepOptions options;
  options.dtype = read_dtype("--dtype", args.dtype);
  options.grad_weight = read_dtype("--grad", args.grad);
  options.wire = read_dtype("--wire", args.wire);
  options.sequence_parallel = !args.all_rows;
  options.keep_gathered = args.keep_gathered;
  PLAIT_CHECK(
      !args.keep_gathered || !args.all_rows,
      "--keep-gathered cannot be combined with --no-sequence-parallel, which gathers nothing");
  options.column_backward = args.column_backward;
  options.transport = args.transport;
  options.link = read_link(args.link);
  if (!args.threads.empty()) options.threads = read_threads(args.threads);
  options.plans = read_plans(args.plans);
  options.effort = read_effort(args.repeat, args.seconds);
  options.files = args.files;
  check_distinct(options.files);
  return options;
}

double read_fraction(const char* option, const std::string& text, double most) {
  const auto number = base::parse_number(text);
  PLAIT_CHECK(number && *number >= 0 && *number <= most, option, ' ', text,
              " is not between 0 and ", most);
  return *number;
}

// Whether the first word, which says what to measure, asks for help.
bool asks_for_help(Words words) {
  return !words.empty() && (words[0] == "-h" || words[0] == "--help");
}

}  // namespace

std::optional<StepOptions> read_layer_options(Words words) {
  Args args = {.seconds = "1"};
  Options options({.verb = "bench layer",
                   .usage = "column|row --n N --k K [OPTIONS]",
                   .purpose = kLayerPurpose,
                   .examples = kLayerExamples});
  options.add("-m,--m", "M", args.m, "tokens of all ranks together (default: 1024)");
  options.add("-n,--n", "N", args.n, "outputs of the whole layer");
  options.add("-k,--k", "K", args.k, "inputs of the whole layer");
  options.add("--ranks", "N", args.ranks, "number of ranks (default: the launcher's, or 2)");
  add_common_options(options, args);
  if (asks_for_help(words)) return options.parse(words), std::nullopt;
  PLAIT_CHECK(!words.empty() && (words[0] == "column" || words[0] == "row"),
              "the kind of layer is missing: column or row (plait bench layer --help)");
  if (!options.parse_all(words.subspan(1))) return std::nullopt;
  PLAIT_CHECK(!args.n.empty() && !args.k.empty(),
              "--n and --k, the layer's outputs and inputs, are required");
  StepOptions step = understand(args);
  if (words[0] == "row") {
    PLAIT_CHECK(!step.keep_gathered,
                "--keep-gathered applies to column layers, and this is a row layer");
    PLAIT_CHECK(!step.column_backward,
                "--column-backward applies to column layers, and this is a row layer");
  }
  step.ranks = read_ranks("--ranks", args.ranks, args.transport);
  step.tokens = read_number("--m", args.m, 1, kLargestSize);
  step.linears = {{.name = words[0],
                   .kind = words[0] == "row" ? LinearKind::row : LinearKind::column,
                   .in = read_number("--k", args.k, 1, kLargestSize),
                   .out = read_number("--n", args.n, 1, kLargestSize)}};
  return step;
}

std::optional<StepOptions> read_model_options(Words words) {
  Args args;
  Options options({.verb = "bench model",
                   .usage = "MODEL [OPTIONS]",
                   .purpose = kModelPurpose,
                   .examples = kModelExamples});
  options.add("--layers", "L", args.layers, "number of blocks (default: 1)");
  options.add("--scale", "S", args.scale,
              "factor for the model's widths, which are then rounded to whole\n"
              "panels on each rank; the result is printed (default: 0.25)");
  options.add("--tp,--ranks", "P", args.ranks,
              "number of ranks that share a layer (default: the launcher's, or 2)");
  options.add("--seq", "TOKENS", args.seq, "tokens of a sequence (default: 1024)");
  options.add("--batch", "B", args.batch, "sequences of a step (default: 1)");
  options.add("--stand-in", "X", args.stand_in,
              "wait, in place of attention and norms, X times as long as the\n"
              "products take (default: 0)");
  add_common_options(options, args);
  if (asks_for_help(words)) return options.parse(words), std::nullopt;
  PLAIT_CHECK(!words.empty(), "the model is missing: ", model_names(),
              " (plait bench model --help)");
  const Model& model = read_model_name(words[0]);
  if (!options.parse_all(words.subspan(1))) return std::nullopt;
  StepOptions step = understand(args);
  step.model = words[0];
  step.scale = read_fraction("--scale", args.scale, 1);
  PLAIT_CHECK(step.scale > 0, "--scale ", args.scale, " is not above 0");
  step.ranks = read_ranks("--tp", args.ranks, args.transport);
  step.layers = static_cast<int>(read_number("--layers", args.layers, 1, kMostLayers));
  step.layers_of_model = static_cast<int>(model.layers);
  step.sequence = read_number("--seq", args.seq, 1, kLargestSize);
  step.tokens = step.sequence * read_number("--batch", args.batch, 1, 4096);
  PLAIT_CHECK(step.tokens <= kLargestSize, "--seq ", args.seq, " --batch ", args.batch, " give ",
              step.tokens, " tokens; at most ", kLargestSize, " are possible");
  step.stand_in = read_fraction("--stand-in", args.stand_in, kMostStandIn);
  const BlockWidths widths = scaled(widths_of(model), step.scale, step.ranks);
  step.linears = linear_layers(widths);
  step.scale = static_cast<double>(widths.hidden) / static_cast<double>(model.hidden);
  return step;
}

}  // namespace plait::cli
