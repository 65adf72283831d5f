#include "cli/tune/tune_options.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "cli/as_ranks.h"
#include "cli/bench/experts_words.h"
#include "cli/bench/measurements.h"
#include "cli/options.h"
#include "cli/output_files.h"
#include "cli/problem_options.h"
#include "cli/tune/problems.h"
#include "cli/values.h"
#include "ops/shapes.h"
#include "plait/quantized.h"
#include "plait/settings.h"
#include "plan/cache.h"
#include "plan/families.h"
#include "plan/weight_kind.h"

namespace plait::cli {
namespace {

constexpr Options::About kAbout = {
    .verb = "tune",
    .usage = "[OPTIONS]",
    .purpose =
        "Measures the fastest plan for each problem, including serial, and stores it where\n"
        "plait::automatic_plans() finds it. If the machine has no profile yet, it is measured\n"
        "first, for up to a minute, to decide which plans are worth measuring. Each problem is\n"
        "stored as soon as it is measured, so Ctrl-C loses only the current one.",
    .examples =
        "Exit status: 0 done; 1 the cache or another file can't be written; 2 wrong usage; 3 a\n"
        "rank was lost; 130 after Ctrl-C.\n\n"
        "Examples:\n"
        "  plait tune --op matmul-all-reduce --m 512,2048 --n 8192 --k 8192\n"
        "  plait tune --model llama2-7b --tp 2 --m 2048 --link 25gbit,5us --missing\n"
        "  plait tune --experts qwen3-30b-a3b --m 512 --ranks 2\n"
        "  plait tune --from plait-trace.json\n"
        "  plait tune --profile\n"
        "  plait tune --show\n"};

// The problems as given: by sizes, by a model or by a timeline.
struct ProblemOptions {
  std::string ops = "matmul-all-reduce";
  measure::ExchangeSetup heads = {};
  SizeOptions sizes = {};
  measure::ExpertsSetup experts = {};
  const plan::Model* model = nullptr;
  double scale = 1;
  bool no_sequence_parallel = false;
  std::string from = {};
  DtypeOptions dtypes = {};
  Dtype wire = Dtype::f32;
  std::string weight = {};
  std::optional<Link> link = {};
  std::string backend = {};
};

const plan::Model* read_model(std::string_view, const std::string& text) {
  return &read_model_name(text);
}

void add_options(Options& options, ProblemOptions& problem) {
  options.add("--op", "NAME[,NAME...]", problem.ops, "operators (default: matmul-all-reduce)");
  options.offer(measured_words());
  add_heads_option(options, problem.heads);
  add_options(options, problem.sizes);
  options.add("--model", "NAME", problem.model, read_model,
              "tune the linear layers of a model's block, forward and backward,\n"
              "with --m rows (default: 2048): bloom-7b, bloom-176b, llama2-7b or\nllama2-70b");
  options.offer(model_words());
  options.add("--scale", kScale, problem.scale,
              "factor for the model's widths, as in plait bench model (default: 1)");
  options.add_flag("--no-sequence-parallel", problem.no_sequence_parallel,
                   "for --model: all-reduce sums in place of sequence parallelism");
  options.add("--experts", "NAME[,...]", problem.experts.models, read_experts,
              "tune a layer of experts by packed weights, as in plait bench experts,\n"
              "with --m tokens on each rank (default: 512): qwen3-30b-a3b,\n"
              "deepseek-v2-lite, gpt-oss-quarter");
  options.offer(experts_words());
  options.add_flag("--replicated", problem.experts.replicated,
                   "for --experts: all ranks have the same tokens, as in decoding");
  options.add("--from", "FILE", problem.from,
              "tune the operators that a timeline contains (plait trace,\n"
              "Trace::write_json)");
  add_options(options, problem.dtypes);
  options.add("--wire", kWire, problem.wire,
              "dtype in which partial sums are sent (default: PLAIT_WIRE, or auto)");
  options.add("-w,--weight", kWeight, problem.weight,
              "a dtype, or a scheme such as s8:channel, packed before the call;\n"
              "plain: x's dtype, packed in every call (default: plain for --model,\n"
              "as in training; otherwise x's dtype, packed)");
  options.add(
      "-l,--link", "LINK", problem.link,
      [](std::string_view, const std::string& text) { return parse_link(text); },
      "emulated link between all ranks, such as 25gbit,5us");
  options.add("-b,--backend", kBackend, problem.backend,
              "backend of the product; see plait info (default: PLAIT_BACKEND, or\n"
              "the best, as with auto)");
}

void add_options(Options& options, TuneOptions& tune) {
  options.add("-s,--seconds", kSeconds, tune.effort.each,
              "time to measure each problem, for at least a few calls of each plan\n"
              "(default: 2); with --profile, the longest time to measure each figure,\n"
              "for at least one call (default: as long as a precise figure takes)");
  options.add("--plans", whole(1, 200), tune.effort.plans,
              "number of plans to measure besides serial (default: 10)");
  options.add_flag("--missing", tune.missing, "skip problems that are in the cache");
  options.add("--cache", "FILE", tune.cache,
              "file of plans, with the machine's profile next to it (default:\n"
              "PLAIT_PLAN_CACHE, or plait/plans in $XDG_CACHE_HOME or ~/.cache)");
  options.add_flag("--profile", tune.profile_only,
                   "measure only the machine's profile, and no plans");
  options.add_flag("--show", tune.show, "print the plans in the cache");
  options.add("--json", "FILE", tune.files.json,
              "also write the plans as JSON; -: print only JSON");
}

// Everything but the operator and the sizes.
PlanKey usual_key(const ProblemOptions& given, int ranks) {
  PlanKey key = {.op = Operator::matmul, .m = 0, .n = 0, .k = 0};
  key.x = given.dtypes.x;
  key.out = given.dtypes.result();
  key.wire = given.wire;
  key.weight = given.weight.empty() ? std::string(name(key.x)) : given.weight;
  // Weights of layers in training are not packed before the call.
  if (given.weight.empty() ? given.model != nullptr : given.weight == plan::kPlain)
    key.weight = plan::plain_weight(key.x);
  if (const auto scheme = parse_quant_scheme(key.weight)) key.weight = name(*scheme);
  key.link = given.link;
  key.backend = given.backend;
  key.world = ranks;
  return key;
}

std::vector<PlanKey> problems_of_model(const ProblemOptions& given, PlanKey usual) {
  const plan::BlockWidths all = plan::widths_of(*given.model);
  const plan::BlockWidths widths =
      given.scale < 1 ? plan::scaled(all, given.scale, usual.world) : all;
  std::vector<PlanKey> problems;
  const std::vector<std::int64_t> rows =
      given.sizes.m.empty() ? std::vector<std::int64_t>{2048} : given.sizes.m;
  for (const std::int64_t m : rows) {
    usual.m = m;
    for (const PlanKey& one : problems_of(widths, !given.no_sequence_parallel, usual))
      add_problem(problems, one);
  }
  return problems;
}

std::vector<PlanKey> problems_of_operators(const ProblemOptions& given, const PlanKey& usual) {
  std::vector<PlanKey> problems;
  for (const std::string& spelling : read_list("--op", given.ops)) {
    const plan::FamilyCall* const call = plan::find_family_call(spelling);
    PLAIT_CHECK(call == nullptr || call->family != Family::experts, "--op ", spelling,
                " is a layer of a model, which --experts names");
    const MeasuredOperator found = find_measured(spelling).value_or(MeasuredOperator{});
    const Operator op = found.exchange ? found.exchange->like() : found.op;
    PLAIT_CHECK(traits_of(op).communicates(), "--op ", spelling,
                " has no plans; operators such as matmul-all-reduce have");
    for (const measure::OpSize& size : read_sizes(given.sizes)) {
      PlanKey key = usual;
      key.op = op;
      key.m = size.m;
      key.n = size.n;
      key.k = size.k;
      if (found.exchange) {
        key.family = found.exchange->family;
        key.columns = measure::most_columns(key, given.heads);
      }
      if (found.exchange || !traits_of(op).shares_k) key.wire = key.x;
      add_problem(problems, key);
    }
  }
  return problems;
}

// A layer has one plan for all batches; it is measured with one.
std::vector<PlanKey> problems_of_experts(const ProblemOptions& given, PlanKey usual) {
  std::vector<PlanKey> problems;
  for (const measure::ExpertsModel& model : given.experts.models) {
    const ExpertsDesc desc = measure::describe(model, usual.x);
    usual.op = plan::find_family_call(Family::experts, given.experts.replicated)->like;
    usual.family = Family::experts;
    usual.m = desc.top;
    usual.n = desc.inner;
    usual.k = desc.hidden;
    usual.columns = desc.experts;
    usual.wire = usual.x;
    add_problem(problems, usual);
  }
  return problems;
}

using Names = std::initializer_list<const char*>;

// Refuses the first of these options that was given.
void refuse(const Options& options, std::string_view sentence, Names names) {
  for (const char* option : names) {
    PLAIT_CHECK(!options.is_given(option), sentence, " cannot be combined with ",
                options.as_given(option));
  }
}

void check_together(const Options& options, const TuneOptions& tune, const ProblemOptions& given) {
  PLAIT_CHECK(!(tune.show && tune.profile_only), "--show and --profile cannot be combined");
  PLAIT_CHECK(!options.is_given("--ranks") || !options.is_given("--tp"),
              "--ranks and --tp mean the same; give only one of them");
  if (tune.show || tune.profile_only) {
    const std::string request = tune.show ? "--show" : "--profile";
    refuse(options, request + " concerns no problem, so it",
           {"--op", "--m", "--n", "--k", "--shapes", "--model", "--scale", "--from", "--dtype",
            "--out", "--wire", "--weight", "--link", "--plans", "--missing",
            "--no-sequence-parallel", "--heads", "--experts", "--replicated"});
    if (tune.show) {
      refuse(options, "--show measures nothing, so it",
             {"--seconds", "--ranks", "--tp", "--transport", "--threads", "--backend"});
    }
    // The profile also applies to programs with another backend.
    PLAIT_CHECK(!options.is_given("--backend") || given.backend.empty(),
                "--profile measures the best backend, so it cannot be combined with --backend ",
                given.backend);
    return;
  }
  PLAIT_CHECK(given.model == nullptr || given.from.empty(),
              "--model and --from cannot be combined");
  for (const char* option : {"--no-sequence-parallel", "--scale"})
    PLAIT_CHECK(given.model != nullptr || !options.is_given(option), option, " requires --model");
  if (!given.experts.models.empty()) {
    refuse(options, "--experts",
           {"--op", "--heads", "--model", "--from", "--n", "--k", "--shapes", "--out", "--wire",
            "--weight"});
    PLAIT_CHECK(given.sizes.m.size() <= 1, "--experts: a layer has one plan for all batches, so ",
                "--m takes one number of tokens");
  }
  PLAIT_CHECK(!given.experts.replicated || !given.experts.models.empty(),
              "--replicated requires --experts");
  if (given.model != nullptr) {
    refuse(options, "--model", {"--op", "--heads"});
    PLAIT_CHECK(given.sizes.n.empty() && given.sizes.k.empty() && given.sizes.shapes.empty(),
                "--model ", given.model->name, " cannot be combined with --n, --k or --shapes");
  }
  if (given.from.empty()) return;
  refuse(options, "--from",
         {"--op", "--heads", "--m", "--n", "--k", "--shapes", "--dtype", "--out", "--wire",
          "--weight", "--ranks", "--tp", "--backend"});
}

// All problems of a timeline must have been called by the same ranks.
void take_from_trace(TuneOptions& tune, const Options& options, const PlanKey& usual) {
  tune.problems = problems_in_trace(tune.from, usual);
  const PlanKey& first = tune.problems.front();
  for (const PlanKey& key : tune.problems) {
    const bool alike = key.world == first.world && key.transport == first.transport &&
                       key.threads == first.threads;
    PLAIT_CHECK(alike, "--from ", tune.from, " has calls of different ranks: ", name(first),
                " and ", name(key));
  }
  tune.ranks = first.world;
  if (tune.transport.empty()) tune.transport = first.transport;
  check_started(
      base::sentence("--from ", tune.from, " has calls of ", base::show_count(first.world, "rank")),
      tune.ranks, tune.transport);
  if (!options.is_given("--threads")) tune.threads = first.threads;
}

void find_problems(TuneOptions& tune, const Options& options, const ProblemOptions& given) {
  const PlanKey usual = usual_key(given, tune.ranks);
  if (given.model != nullptr) {
    tune.problems = problems_of_model(given, usual);
  } else if (!given.experts.models.empty()) {
    tune.problems = problems_of_experts(given, usual);
    tune.experts = given.experts;
    tune.experts.tokens = given.sizes.m.empty() ? std::vector<std::int64_t>{512} : given.sizes.m;
  } else if (!given.from.empty()) {
    take_from_trace(tune, options, usual);
  } else {
    tune.problems = problems_of_operators(given, usual);
    const auto have = [&](auto&& is_such) {
      return std::any_of(tune.problems.begin(), tune.problems.end(), is_such);
    };
    PLAIT_CHECK(have([](const PlanKey& key) { return key.family == Family::ulysses; }) ||
                    !options.is_given("--heads"),
                options.as_given("--heads"),
                " applies to matmul-all-to-all and all-to-all-matmul, and neither is in --op ",
                given.ops);
    const bool sums = have([](const PlanKey& key) {
      return key.family == Family::operators && traits_of(key.op).shares_k;
    });
    PLAIT_CHECK(sums || !options.is_given("--wire"), options.as_given("--wire"),
                " applies to partial sums, and there are none in --op ", given.ops);
  }
}

}  // namespace

std::optional<TuneOptions> read_tune_options(Words words) {
  // The settings of programs that will read the plans.
  const Settings settings = load_settings();
  TuneOptions tune = {.cache = settings.plan_cache};
  ProblemOptions given = {.wire = settings.wire,
                          .backend = read_backend("backend", settings.backend)};
  RankOptions ranks = {.threads = settings.threads};
  std::string tp;
  Options options(kAbout);
  add_options(options, given);
  add_options(options, ranks, "--ranks", "PLAIT_THREADS, or its share of the\ncores");
  options.add("--tp", "N", tp, "same as --ranks");
  add_options(options, tune);
  if (!options.parse_all(words)) return std::nullopt;
  check_together(options, tune, given);
  tune.ranks = tp.empty() ? read_ranks("--ranks", ranks.ranks, ranks.transport)
                          : read_ranks("--tp", tp, ranks.transport);
  tune.transport = ranks.transport;
  tune.threads = ranks.threads;
  tune.from = given.from;
  tune.heads = given.heads;
  PLAIT_CHECK(!tune.cache.empty(), "there is no file for plans; give one with --cache FILE");
  check_distinct(tune.files, {{"the plan cache", tune.cache},
                              {"the machine's profile", plan::profile_path(tune.cache)},
                              {"the shapes", given.sizes.shapes},
                              {"the timeline", given.from}});
  if (tune.profile_only && options.is_given("--seconds")) tune.longest_figure = tune.effort.each;
  if (!tune.show && !tune.profile_only) find_problems(tune, options, given);
  return tune;
}

}  // namespace plait::cli
