#include "cli/tune/options.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "cli/bench/as_ranks.h"
#include "cli/bench/op_sizes.h"
#include "cli/launch/words.h"
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
struct Wishes {
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

void add_problem_options(Options& options, Wishes& wishes) {
  options.add("--op", "NAME[,NAME...]", wishes.ops, "operators (default: matmul-all-reduce)");
  options.add("-m,--m", "M[,M...]", wishes.sizes.m, "rows of the whole problem");
  options.add("-n,--n", "N[,N...]", wishes.sizes.n, "columns of the whole problem");
  options.add("-k,--k", "K[,K...]", wishes.sizes.k, "terms of each sum, in the whole problem");
  options.add("--shapes", "FILE", wishes.sizes.shapes,
              "file of sizes, with one line \"m n k\" for each");
  options.add("--model", "NAME", wishes.model,
              "tune the linear layers of a model's block, forward and backward,\n"
              "with --m rows (default: 2048): bloom-7b, bloom-176b, llama2-7b or\nllama2-70b");
  options.add("--scale", "S", wishes.scale,
              "factor for the model's widths, as in plait bench model (default: 1)");
  options.add_flag("--no-sequence-parallel", wishes.no_sequence_parallel,
                   "for --model: all-reduce sums in place of sequence parallelism");
  options.add("--from", "FILE", wishes.from,
              "tune the operators that a timeline contains (plait trace,\n"
              "Trace::write_json)");
  options.add("-d,--dtype", "DTYPE", wishes.x, "dtype of x: f32, bf16 (default) or f16");
  options.add("-o,--out", "DTYPE", wishes.out, "dtype of the result (default: that of x)");
  options.add("--wire", "DTYPE", wishes.wire,
              "dtype in which partial sums are sent (default: PLAIT_WIRE, or f32)");
  options.add("-w,--weight", "KIND", wishes.weight,
              "a dtype, or a scheme such as s8:channel, packed before the call;\n"
              "plain: x's dtype, packed in every call (default: plain for --model,\n"
              "as in training; otherwise x's dtype, packed)");
  options.add("-l,--link", "LINK", wishes.link,
              "emulated link between all ranks, such as 25gbit,5us");
}

void add_other_options(Options& options, Wishes& wishes) {
  options.add("--ranks", "N", wishes.ranks, "number of ranks (default: the launcher's, or 2)");
  options.add("--tp", "N", wishes.tp, "same as --ranks");
  options.add("-t,--transport", "NAME", wishes.transport,
              "shm (default), threads or mpi; see plait info");
  options.add("--threads", "T", wishes.threads,
              "threads of each rank (default: PLAIT_THREADS, or its share of the\ncores)");
  options.add("-b,--backend", "NAME", wishes.backend,
              "backend of the product; see plait info (default: PLAIT_BACKEND, or\n"
              "the best, as with auto)");
  options.add("-s,--seconds", "S", wishes.seconds,
              "time to measure each problem, for at least a few calls of each plan\n"
              "(default: 2)");
  options.add("--plans", "N", wishes.plans,
              "number of plans to measure besides serial (default: 10)");
  options.add_flag("--missing", wishes.missing, "skip problems that are in the cache");
  options.add("--cache", "FILE", wishes.cache,
              "file of plans, with the machine's profile next to it (default:\n"
              "PLAIT_PLAN_CACHE, or plait/plans in $XDG_CACHE_HOME or ~/.cache)");
  options.add_flag("--profile", wishes.profile, "measure only the machine's profile, and no plans");
  options.add_flag("--show", wishes.show, "print the plans in the cache");
  options.add("--json", "FILE", wishes.json, "also write the plans as JSON; -: print only JSON");
}

// Everything but the operator and the sizes.
PlanKey read_usual(const Wishes& wishes, const Settings& settings) {
  PlanKey key = {.op = Operator::matmul, .m = 0, .n = 0, .k = 0};
  if (!wishes.x.empty()) key.x = read_dtype("--dtype", wishes.x);
  key.out = wishes.out.empty() ? key.x : read_dtype("--out", wishes.out);
  key.wire = wishes.wire.empty() ? settings.wire : read_dtype("--wire", wishes.wire);
  // Weights of layers in training are not packed before the call.
  const bool is_plain = wishes.weight.empty() ? !wishes.model.empty() : wishes.weight == kPlain;
  key.weight = wishes.weight.empty() ? std::string(name(key.x)) : wishes.weight;
  check_weight_kind(key.weight);
  if (is_plain) key.weight = plain_weight(key.x);
  if (const auto scheme = parse_quant_scheme(key.weight)) key.weight = name(*scheme);
  if (!wishes.link.empty()) key.link = parse_link(wishes.link);
  key.backend = read_backend(wishes.backend.empty() ? settings.backend : wishes.backend);
  PLAIT_CHECK(wishes.ranks.empty() || wishes.tp.empty(),
              "--ranks and --tp mean the same; give only one of them");
  const std::string& ranks = wishes.tp.empty() ? wishes.ranks : wishes.tp;
  key.world = read_ranks(wishes.tp.empty() ? "--ranks" : "--tp", ranks, wishes.transport);
  return key;
}

BlockWidths read_widths(const Wishes& wishes, const Model& model, int ranks) {
  if (wishes.scale.empty()) return widths_of(model);
  const auto scale = base::parse_number(wishes.scale);
  PLAIT_CHECK(scale && *scale > 0 && *scale <= 1, "--scale ", wishes.scale,
              " is not above 0 and up to 1");
  return scaled(widths_of(model), *scale, ranks);
}

std::vector<PlanKey> read_model(const Wishes& wishes, PlanKey usual) {
  const Model& model = read_model_name(wishes.model);
  PLAIT_CHECK(wishes.sizes.n.empty() && wishes.sizes.k.empty() && wishes.sizes.shapes.empty(),
              "--model ", wishes.model, " cannot be combined with --n, --k or --shapes");
  const BlockWidths widths = read_widths(wishes, model, usual.world);
  std::vector<PlanKey> problems;
  const std::string rows = wishes.sizes.m.empty() ? "2048" : wishes.sizes.m;
  for (const std::string& m : read_list("--m", rows)) {
    usual.m = read_number("--m", m, 1, kLargestSize);
    for (const PlanKey& one : problems_of(widths, !wishes.no_sequence_parallel, usual))
      add_problem(problems, one);
  }
  return problems;
}

std::vector<PlanKey> read_operators(const Wishes& wishes, const PlanKey& usual) {
  std::vector<PlanKey> problems;
  const std::string ops = wishes.ops.empty() ? "matmul-all-reduce" : wishes.ops;
  for (const std::string& spelling : read_list("--op", ops)) {
    const auto op = parse_operator(spelling);
    PLAIT_CHECK(op && *op != Operator::matmul, "--op ", spelling,
                " is not an operator with plans, such as matmul-all-reduce");
    for (const OpSize& size : read_sizes(wishes.sizes)) {
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
  PLAIT_CHECK(sums || wishes.wire.empty(), "--wire ", wishes.wire,
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
void refuse_problems(const char* wish, const Wishes& wishes) {
  const SizeWords& sizes = wishes.sizes;
  const std::initializer_list<Word> words = {
      {"--op", &wishes.ops},       {"--m", &sizes.m},
      {"--n", &sizes.n},           {"--k", &sizes.k},
      {"--shapes", &sizes.shapes}, {"--model", &wishes.model},
      {"--scale", &wishes.scale},  {"--from", &wishes.from},
      {"--dtype", &wishes.x},      {"--out", &wishes.out},
      {"--wire", &wishes.wire},    {"--weight", &wishes.weight},
      {"--link", &wishes.link},    {"--seconds", &wishes.seconds},
      {"--plans", &wishes.plans}};
  const auto refuse = [&](std::string_view word) {
    base::fail(Code::invalid_argument, wish, " concerns no problem, so it cannot be combined with ",
               word);
  };
  for (const auto& [option, said] : words)
    if (!said->empty()) refuse(base::sentence(option, ' ', *said));
  if (wishes.missing) refuse("--missing");
  if (wishes.no_sequence_parallel) refuse("--no-sequence-parallel");
}

// Showing plans needs no ranks.
void refuse_ranks(const Wishes& wishes) {
  const std::initializer_list<Word> words = {{"--ranks", &wishes.ranks},
                                             {"--tp", &wishes.tp},
                                             {"--transport", &wishes.transport},
                                             {"--threads", &wishes.threads},
                                             {"--backend", &wishes.backend}};
  for (const auto& [option, said] : words)
    PLAIT_CHECK(said->empty(), "--show measures nothing, so it cannot be combined with ", option,
                ' ', *said);
}

void check_sources(const Wishes& wishes) {
  PLAIT_CHECK(wishes.model.empty() || wishes.from.empty(), "--model and --from cannot be combined");
  PLAIT_CHECK(!wishes.no_sequence_parallel || !wishes.model.empty(),
              "--no-sequence-parallel requires --model");
  PLAIT_CHECK(wishes.scale.empty() || !wishes.model.empty(), "--scale requires --model");
  if (!wishes.model.empty()) refuse_beside("--model", {{"--op", &wishes.ops}});
  if (wishes.from.empty()) return;
  const SizeWords& sizes = wishes.sizes;
  refuse_beside("--from", {{"--op", &wishes.ops},
                           {"--m", &sizes.m},
                           {"--n", &sizes.n},
                           {"--k", &sizes.k},
                           {"--shapes", &sizes.shapes},
                           {"--dtype", &wishes.x},
                           {"--out", &wishes.out},
                           {"--wire", &wishes.wire},
                           {"--weight", &wishes.weight},
                           {"--ranks", &wishes.ranks},
                           {"--tp", &wishes.tp},
                           {"--backend", &wishes.backend}});
}

// All problems of a timeline must have been called by the same ranks.
void take_from_trace(TuneOptions& options, const Wishes& wishes, const PlanKey& usual) {
  options.problems = problems_in_trace(wishes.from, usual);
  const PlanKey& first = options.problems.front();
  for (const PlanKey& key : options.problems) {
    const bool alike = key.world == first.world && key.transport == first.transport &&
                       key.threads == first.threads;
    PLAIT_CHECK(alike, "--from ", wishes.from, " has calls of different ranks: ", name(first),
                " and ", name(key));
  }
  options.ranks = first.world;
  if (wishes.transport.empty()) options.transport = first.transport;
  check_started(
      base::sentence("--from ", wishes.from, " has calls of ", show_count(first.world, "rank")),
      options.ranks, options.transport);
  if (wishes.threads.empty()) options.threads = first.threads;
}

TuneOptions understand(const Wishes& wishes) {
  // The settings of programs that will read the plans.
  const Settings settings = load_settings();
  const PlanKey usual = read_usual(wishes, settings);
  const std::string seconds = wishes.seconds.empty() ? "2" : wishes.seconds;
  TuneOptions options = {.threads = settings.threads,
                         .transport = wishes.transport,
                         .from = wishes.from,
                         .effort = {.each = read_effort("", seconds).each},
                         .cache = wishes.cache.empty() ? settings.plan_cache : wishes.cache,
                         .files = {.json = wishes.json},
                         .profile_only = wishes.profile,
                         .show = wishes.show,
                         .missing = wishes.missing};
  PLAIT_CHECK(!options.cache.empty(), "there is no file for plans; give one with --cache FILE");
  PLAIT_CHECK(!(options.show && options.profile_only), "--show and --profile cannot be combined");
  check_distinct(options.files, {{"the plan cache", options.cache},
                                 {"the machine's profile", profile_path(options.cache)},
                                 {"the shapes", wishes.sizes.shapes},
                                 {"the timeline", wishes.from}});
  const std::string plans = wishes.plans.empty() ? "10" : wishes.plans;
  options.effort.plans = static_cast<std::size_t>(read_number("--plans", plans, 1, 200));
  options.ranks = usual.world;
  if (!wishes.threads.empty()) options.threads = read_threads(wishes.threads);
  if (options.show || options.profile_only) {
    refuse_problems(options.show ? "--show" : "--profile", wishes);
    if (options.show) refuse_ranks(wishes);
    // The profile also applies to programs with another backend.
    PLAIT_CHECK(read_backend(wishes.backend).empty(),
                "--profile measures the best backend, so it cannot be combined with --backend ",
                wishes.backend);
    return options;
  }
  check_sources(wishes);
  if (!wishes.model.empty()) {
    options.problems = read_model(wishes, usual);
  } else if (!wishes.from.empty()) {
    take_from_trace(options, wishes, usual);
  } else {
    options.problems = read_operators(wishes, usual);
  }
  return options;
}

}  // namespace

std::optional<TuneOptions> read_tune_options(Words words) {
  Wishes wishes;
  Options options(kAbout);
  add_problem_options(options, wishes);
  add_other_options(options, wishes);
  if (!options.parse_all(words)) return std::nullopt;
  return understand(wishes);
}

}  // namespace plait::cli
