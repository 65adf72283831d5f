#include "cli/tune/options.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "cli/as_ranks.h"
#include "cli/op_sizes.h"
#include "cli/options.h"
#include "cli/output_files.h"
#include "cli/tune/problems.h"
#include "cli/values.h"
#include "ops/shapes.h"
#include "plait/quantized.h"
#include "plait/settings.h"
#include "plan/cache.h"
#include "plan/weight_kind.h"

namespace plait::cli {
namespace {

constexpr Options::About kAbout = {
    .verb = "tune",
    .usage = "[OPTIONS]",
    .purpose =
        "Measures the fastest plan for each problem, including serial, and stores it where\n"
        "plait::automatic_plans() finds it. If the machine has no profile yet, it is measured "
        "first,\n"
        "for up to a minute, to decide which plans are worth measuring. Each problem is stored as "
        "soon\n"
        "as it is measured, so Ctrl-C loses only the current one.",
    .examples =
        "Exit status: 0 done; 1 the cache or another file can't be written; 2 wrong usage; 3 a "
        "rank\n"
        "was lost; 130 after Ctrl-C.\n\n"
        "Examples:\n"
        "  plait tune --op matmul-all-reduce --m 512,2048 --n 8192 --k 8192\n"
        "  plait tune --model llama2-7b --tp 2 --m 2048 --link 25gbit,5us --missing\n"
        "  plait tune --from plait-trace.json\n"
        "  plait tune --profile\n"
        "  plait tune --show\n"};

// The arguments as typed.
struct Args {
  std::string ops = {};
  SizeWords sizes = {};
  std::string model = {};
  std::string scale = {};
  bool no_sequence_parallel = false;
  std::string from = {};
  std::string x = {};
  std::string out = {};
  std::string wire = {};
  std::string weight = {};
  std::string ranks = {};
  std::string tp = {};
  std::string transport = {};
  std::string link = {};
  std::string threads = {};
  std::string backend = {};
  std::string seconds = {};
  std::string plans = {};
  std::string cache = {};
  std::string json = {};
  bool profile = false;
  bool show = false;
  bool missing = false;
};

void add_problem_options(Options& options, Args& args) {
  options.add("--op", "NAME[,NAME...]", args.ops, "operators (default: matmul-all-reduce)");
  options.add("-m,--m", "M[,M...]", args.sizes.m, "rows of the whole problem");
  options.add("-n,--n", "N[,N...]", args.sizes.n, "columns of the whole problem");
  options.add("-k,--k", "K[,K...]", args.sizes.k, "terms of each sum, in the whole problem");
  options.add("--shapes", "FILE", args.sizes.shapes,
              "file of sizes, with one line \"m n k\" for each");
  options.add("--model", "NAME", args.model,
              "tune the linear layers of a model's block, forward and backward,\n"
              "with --m rows (default: 2048): bloom-7b, bloom-176b, llama2-7b or\nllama2-70b");
  options.add("--scale", "S", args.scale,
              "factor for the model's widths, as in plait bench model (default: 1)");
  options.add_flag("--no-sequence-parallel", args.no_sequence_parallel,
                   "for --model: all-reduce sums in place of sequence parallelism");
  options.add("--from", "FILE", args.from,
              "tune the operators that a timeline contains (plait trace,\n"
              "Trace::write_json)");
  options.add("-d,--dtype", "DTYPE", args.x, "dtype of x: f32, bf16 (default) or f16");
  options.add("-o,--out", "DTYPE", args.out, "dtype of the result (default: that of x)");
  options.add("--wire", "DTYPE", args.wire,
              "dtype in which partial sums are sent (default: PLAIT_WIRE, or f32)");
  options.add("-w,--weight", "KIND", args.weight,
              "a dtype, or a scheme such as s8:channel, packed before the call;\n"
              "plain: x's dtype, packed in every call (default: plain for --model,\n"
              "as in training; otherwise x's dtype, packed)");
  options.add("-l,--link", "LINK", args.link,
              "emulated link between all ranks, such as 25gbit,5us");
}

void add_other_options(Options& options, Args& args) {
  options.add("--ranks", "N", args.ranks, "number of ranks (default: the launcher's, or 2)");
  options.add("--tp", "N", args.tp, "same as --ranks");
  options.add("-t,--transport", "NAME", args.transport,
              "shm (default), threads or mpi; see plait info");
  options.add("--threads", "T", args.threads,
              "threads of each rank (default: PLAIT_THREADS, or its share of the\ncores)");
  options.add("-b,--backend", "NAME", args.backend,
              "backend of the product; see plait info (default: PLAIT_BACKEND, or\n"
              "the best, as with auto)");
  options.add("-s,--seconds", "S", args.seconds,
              "time to measure each problem, for at least a few calls of each plan\n"
              "(default: 2)");
  options.add("--plans", "N", args.plans,
              "number of plans to measure besides serial (default: 10)");
  options.add_flag("--missing", args.missing, "skip problems that are in the cache");
  options.add("--cache", "FILE", args.cache,
              "file of plans, with the machine's profile next to it (default:\n"
              "PLAIT_PLAN_CACHE, or plait/plans in $XDG_CACHE_HOME or ~/.cache)");
  options.add_flag("--profile", args.profile, "measure only the machine's profile, and no plans");
  options.add_flag("--show", args.show, "print the plans in the cache");
  options.add("--json", "FILE", args.json, "also write the plans as JSON; -: print only JSON");
}

// Everything but the operator and the sizes.
PlanKey read_usual(const Args& args, const Settings& settings) {
  PlanKey key = {.op = Operator::matmul, .m = 0, .n = 0, .k = 0};
  if (!args.x.empty()) key.x = read_dtype("--dtype", args.x);
  key.out = args.out.empty() ? key.x : read_dtype("--out", args.out);
  key.wire = args.wire.empty() ? settings.wire : read_dtype("--wire", args.wire);
  // Weights of layers in training are not packed before the call.
  const bool is_plain = args.weight.empty() ? !args.model.empty() : args.weight == kPlain;
  key.weight = args.weight.empty() ? std::string(name(key.x)) : args.weight;
  check_weight_kind(key.weight);
  if (is_plain) key.weight = plain_weight(key.x);
  if (const auto scheme = parse_quant_scheme(key.weight)) key.weight = name(*scheme);
  if (!args.link.empty()) key.link = parse_link(args.link);
  key.backend = read_backend(args.backend.empty() ? settings.backend : args.backend);
  PLAIT_CHECK(args.ranks.empty() || args.tp.empty(),
              "--ranks and --tp mean the same; give only one of them");
  const std::string& ranks = args.tp.empty() ? args.ranks : args.tp;
  key.world = read_ranks(args.tp.empty() ? "--ranks" : "--tp", ranks, args.transport);
  return key;
}

BlockWidths read_widths(const Args& args, const Model& model, int ranks) {
  if (args.scale.empty()) return widths_of(model);
  const auto scale = base::parse_number(args.scale);
  PLAIT_CHECK(scale && *scale > 0 && *scale <= 1, "--scale ", args.scale,
              " is not above 0 and up to 1");
  return scaled(widths_of(model), *scale, ranks);
}

std::vector<PlanKey> read_model(const Args& args, PlanKey usual) {
  const Model& model = read_model_name(args.model);
  PLAIT_CHECK(args.sizes.n.empty() && args.sizes.k.empty() && args.sizes.shapes.empty(), "--model ",
              args.model, " cannot be combined with --n, --k or --shapes");
  const BlockWidths widths = read_widths(args, model, usual.world);
  std::vector<PlanKey> problems;
  const std::string rows = args.sizes.m.empty() ? "2048" : args.sizes.m;
  for (const std::string& m : read_list("--m", rows)) {
    usual.m = read_number("--m", m, 1, kLargestSize);
    for (const PlanKey& one : problems_of(widths, !args.no_sequence_parallel, usual))
      add_problem(problems, one);
  }
  return problems;
}

std::vector<PlanKey> read_operators(const Args& args, const PlanKey& usual) {
  std::vector<PlanKey> problems;
  const std::string ops = args.ops.empty() ? "matmul-all-reduce" : args.ops;
  for (const std::string& spelling : read_list("--op", ops)) {
    const auto op = parse_operator(spelling);
    PLAIT_CHECK(op && *op != Operator::matmul, "--op ", spelling,
                " is not an operator with plans, such as matmul-all-reduce");
    for (const measure::OpSize& size : read_sizes(args.sizes)) {
      PlanKey key = usual;
      key.op = *op;
      key.m = size.m;
      key.n = size.n;
      key.k = size.k;
      key.wire = ops::wire_of(*op, key.x, key.wire);
      add_problem(problems, key);
    }
  }
  const bool sums = std::any_of(problems.begin(), problems.end(),
                                [](const PlanKey& key) { return ops::makes_partial_sums(key.op); });
  PLAIT_CHECK(sums || args.wire.empty(), "--wire ", args.wire,
              " applies to partial sums, and there are none in --op ", ops);
  return problems;
}

using Word = std::pair<const char*, const std::string*>;

// Refuses options that `source` sets.
void refuse_beside(const char* source, std::initializer_list<Word> words) {
  for (const auto& [option, said] : words)
    PLAIT_CHECK(said->empty(), source, " cannot be combined with ", option, " ", *said);
}

// Refuses options of problems, for requests that concern no problem.
void refuse_problems(const char* request, const Args& args) {
  const SizeWords& sizes = args.sizes;
  const std::initializer_list<Word> words = {
      {"--op", &args.ops},         {"--m", &sizes.m},
      {"--n", &sizes.n},           {"--k", &sizes.k},
      {"--shapes", &sizes.shapes}, {"--model", &args.model},
      {"--scale", &args.scale},    {"--from", &args.from},
      {"--dtype", &args.x},        {"--out", &args.out},
      {"--wire", &args.wire},      {"--weight", &args.weight},
      {"--link", &args.link},      {"--seconds", &args.seconds},
      {"--plans", &args.plans}};
  const auto refuse = [&](std::string_view word) {
    base::fail(Code::invalid_argument, request,
               " concerns no problem, so it cannot be combined with ", word);
  };
  for (const auto& [option, said] : words)
    if (!said->empty()) refuse(base::sentence(option, ' ', *said));
  if (args.missing) refuse("--missing");
  if (args.no_sequence_parallel) refuse("--no-sequence-parallel");
}

// Showing plans needs no ranks.
void refuse_ranks(const Args& args) {
  const std::initializer_list<Word> words = {{"--ranks", &args.ranks},
                                             {"--tp", &args.tp},
                                             {"--transport", &args.transport},
                                             {"--threads", &args.threads},
                                             {"--backend", &args.backend}};
  for (const auto& [option, said] : words)
    PLAIT_CHECK(said->empty(), "--show measures nothing, so it cannot be combined with ", option,
                ' ', *said);
}

void check_sources(const Args& args) {
  PLAIT_CHECK(args.model.empty() || args.from.empty(), "--model and --from cannot be combined");
  PLAIT_CHECK(!args.no_sequence_parallel || !args.model.empty(),
              "--no-sequence-parallel requires --model");
  PLAIT_CHECK(args.scale.empty() || !args.model.empty(), "--scale requires --model");
  if (!args.model.empty()) refuse_beside("--model", {{"--op", &args.ops}});
  if (args.from.empty()) return;
  const SizeWords& sizes = args.sizes;
  refuse_beside("--from", {{"--op", &args.ops},
                           {"--m", &sizes.m},
                           {"--n", &sizes.n},
                           {"--k", &sizes.k},
                           {"--shapes", &sizes.shapes},
                           {"--dtype", &args.x},
                           {"--out", &args.out},
                           {"--wire", &args.wire},
                           {"--weight", &args.weight},
                           {"--ranks", &args.ranks},
                           {"--tp", &args.tp},
                           {"--backend", &args.backend}});
}

// All problems of a timeline must have been called by the same ranks.
void take_from_trace(TuneOptions& options, const Args& args, const PlanKey& usual) {
  options.problems = problems_in_trace(args.from, usual);
  const PlanKey& first = options.problems.front();
  for (const PlanKey& key : options.problems) {
    const bool alike = key.world == first.world && key.transport == first.transport &&
                       key.threads == first.threads;
    PLAIT_CHECK(alike, "--from ", args.from, " has calls of different ranks: ", name(first),
                " and ", name(key));
  }
  options.ranks = first.world;
  if (args.transport.empty()) options.transport = first.transport;
  check_started(
      base::sentence("--from ", args.from, " has calls of ", base::show_count(first.world, "rank")),
      options.ranks, options.transport);
  if (args.threads.empty()) options.threads = first.threads;
}

TuneOptions understand(const Args& args) {
  // The settings of programs that will read the plans.
  const Settings settings = load_settings();
  const PlanKey usual = read_usual(args, settings);
  const std::string seconds = args.seconds.empty() ? "2" : args.seconds;
  TuneOptions options = {.threads = settings.threads,
                         .transport = args.transport,
                         .from = args.from,
                         .effort = {.each = read_effort("", seconds).each},
                         .cache = args.cache.empty() ? settings.plan_cache : args.cache,
                         .files = {.json = args.json},
                         .profile_only = args.profile,
                         .show = args.show,
                         .missing = args.missing};
  PLAIT_CHECK(!options.cache.empty(), "there is no file for plans; give one with --cache FILE");
  PLAIT_CHECK(!(options.show && options.profile_only), "--show and --profile cannot be combined");
  check_distinct(options.files, {{"the plan cache", options.cache},
                                 {"the machine's profile", profile_path(options.cache)},
                                 {"the shapes", args.sizes.shapes},
                                 {"the timeline", args.from}});
  const std::string plans = args.plans.empty() ? "10" : args.plans;
  options.effort.plans = static_cast<std::size_t>(read_number("--plans", plans, 1, 200));
  options.ranks = usual.world;
  if (!args.threads.empty()) options.threads = read_threads(args.threads);
  if (options.show || options.profile_only) {
    refuse_problems(options.show ? "--show" : "--profile", args);
    if (options.show) refuse_ranks(args);
    // The profile also applies to programs with another backend.
    PLAIT_CHECK(read_backend(args.backend).empty(),
                "--profile measures the best backend, so it cannot be combined with --backend ",
                args.backend);
    return options;
  }
  check_sources(args);
  if (!args.model.empty()) {
    options.problems = read_model(args, usual);
  } else if (!args.from.empty()) {
    take_from_trace(options, args, usual);
  } else {
    options.problems = read_operators(args, usual);
  }
  return options;
}

}  // namespace

std::optional<TuneOptions> read_tune_options(Words words) {
  Args args;
  Options options(kAbout);
  add_problem_options(options, args);
  add_other_options(options, args);
  if (!options.parse_all(words)) return std::nullopt;
  return understand(args);
}

}  // namespace plait::cli
