#include "cli/problem_options.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "cli/options.h"
#include "cli/values.h"
#include "ops/op_checks.h"

namespace plait::cli {
namespace {

std::vector<measure::OpSize> read_shapes_file(const std::string& path) {
  std::ifstream file = open_input("--shapes", path);
  std::vector<measure::OpSize> sizes;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string place = base::sentence("--shapes ", path, ", line ", number, ":");
    line = line.substr(0, line.find('#'));
    std::istringstream words(line);
    std::vector<std::int64_t> numbers;
    std::string word;
    while (words >> word) numbers.push_back(read_number(place, word, 1, kLargestSize));
    if (numbers.empty()) continue;
    PLAIT_CHECK(numbers.size() == 3, place, " \"", line, "\" is not three sizes: m n k");
    sizes.push_back({numbers[0], numbers[1], numbers[2]});
  }
  PLAIT_CHECK(!sizes.empty(), "--shapes ", path, " has no line with sizes m n k");
  return sizes;
}

void add_plan(std::vector<Plan>& plans, const Plan& plan) {
  if (std::find(plans.begin(), plans.end(), plan) == plans.end()) plans.push_back(plan);
}

}  // namespace

void add_options(Options& options, SizeOptions& given) {
  options.add("--m|-m", sizes("M[,M...]"), given.m, "rows of the whole problem");
  options.add("--n|-n", sizes("N[,N...]"), given.n, "columns of the whole problem");
  options.add("--k|-k", sizes("K[,K...]"), given.k,
              "terms of each sum, in the whole problem; several sizes run one after\n"
              "another");
  options.add("--shapes", "FILE", given.shapes, "file of sizes, with one line \"m n k\" for each");
}

void add_options(Options& options, DtypeOptions& dtypes) {
  options.add("-d,--dtype", kDtype, dtypes.x, "dtype of x: f32, bf16 (default) or f16");
  options.add("--out|-o", kDtype, dtypes.out, "dtype of the result (default: that of x)");
}

void add_options(Options& options, PlanOptions& words, const std::string& parts) {
  options.add("--schedule", "NAME[,...]|all", words.schedule,
              "schedules: serial, pipelined, fused (default: all of the operator)");
  options.offer({"serial", "pipelined", "fused", "all"});
  options.add("--parts", "N[,N...]", words.parts,
              "parts of pipelined plans (default: " + parts + ")");
  options.add("--plan", "PLAN[;PLAN...]", words.plans,
              "plans in place of --schedule, such as \"fused chunk=256\"");
}

void add_options(Options& options, LayerOptions& layers) {
  options.add_flag("--no-sequence-parallel|--whole-rows", layers.no_sequence_parallel,
                   "keep all tokens on every rank between the layers");
  options.add_flag(
      "--keep-gathered", layers.keep_gathered,
      "keep the rows that column layers gather in forward\n(recompute_all_gather=false)");
  options.add_flag("--column-backward", layers.column_backward,
                   "use an operator for the input gradient of column layers");
}

void check(const LayerOptions& layers) {
  PLAIT_CHECK(
      !layers.keep_gathered || !layers.no_sequence_parallel,
      "--keep-gathered cannot be combined with --no-sequence-parallel, which gathers nothing");
}

std::vector<measure::OpSize> read_sizes(const SizeOptions& given) {
  const auto& [m, n, k, shapes] = given;
  if (!shapes.empty()) {
    PLAIT_CHECK(m.empty() && n.empty() && k.empty(), "--shapes ", shapes,
                " cannot be combined with --m, --n or --k");
    return read_shapes_file(shapes);
  }
  using Size = std::pair<const char*, const std::vector<std::int64_t>&>;
  for (const auto& [option, list] : {Size("--m", m), Size("--n", n), Size("--k", k)})
    PLAIT_CHECK(!list.empty(), option, " is missing; give --m, --n and --k, or --shapes FILE");
  const std::size_t count = std::max({m.size(), n.size(), k.size()});
  for (const auto* list : {&m, &n, &k}) {
    PLAIT_CHECK(list->size() == 1 || list->size() == count, "--m, --n and --k have ", m.size(),
                ", ", n.size(), " and ", k.size(),
                " sizes; give each of them the same number, or one");
  }
  const auto at = [](const std::vector<std::int64_t>& list, std::size_t i) {
    return list[std::min(i, list.size() - 1)];
  };
  std::vector<measure::OpSize> sizes;
  sizes.reserve(count);
  for (std::size_t i = 0; i < count; ++i) sizes.push_back({at(m, i), at(n, i), at(k, i)});
  return sizes;
}

std::vector<Plan> read_plans(Operator op, const PlanOptions& words, const std::string& parts) {
  if (!words.plans.empty()) {
    PLAIT_CHECK(words.schedule.empty(), "--plan cannot be combined with --schedule ",
                words.schedule);
    PLAIT_CHECK(words.parts.empty(), "--plan cannot be combined with --parts ", words.parts);
    std::vector<Plan> plans = read_plan_list("--plan", words.plans);
    for (const Plan& plan : plans) ops::check_plan(op, plan);
    return plans;
  }
  std::vector<Plan> plans = {{.schedule = Schedule::serial}};
  const auto add = [&](const Plan& plan) { add_plan(plans, plan); };
  for (const std::string& word :
       read_list("--schedule", words.schedule.empty() ? "all" : words.schedule)) {
    PLAIT_CHECK(word != "auto",
                "--schedule auto is none of serial, pipelined, fused, all; plait info --why shows "
                "the automatic plan of a problem, and --plan takes it");
    const bool all = word == "all";
    PLAIT_CHECK(all || word == "serial" || word == "pipelined" || word == "fused", "--schedule ",
                word, " is none of serial, pipelined, fused, all");
    const auto wanted = [&](Schedule schedule) {
      PLAIT_CHECK(all || word != name(schedule) || has_schedule(op, schedule), name(op), " has no ",
                  name(schedule), " schedule");
      return has_schedule(op, schedule) && (all || word == name(schedule));
    };
    if (wanted(Schedule::pipelined)) {
      for (const std::string& some :
           read_list("--parts", words.parts.empty() ? parts : words.parts)) {
        add({.schedule = Schedule::pipelined,
             .parts = static_cast<int>(read_number("--parts", some, 1, 64))});
      }
    }
    if (wanted(Schedule::fused)) add({.schedule = Schedule::fused});
  }
  const bool has_parts = std::any_of(plans.begin(), plans.end(), [](const Plan& plan) {
    return plan.schedule == Schedule::pipelined;
  });
  PLAIT_CHECK(words.parts.empty() || has_parts, "--parts ", words.parts,
              ": only pipelined plans have parts, and --schedule ", words.schedule,
              " has no pipelined plan");
  return plans;
}

std::vector<Plan> read_plan_list(std::string_view, const std::string& text) {
  std::vector<Plan> plans = {{.schedule = Schedule::serial}};
  for (const std::string_view one : base::split(text, ';')) add_plan(plans, parse_plan(one));
  return plans;
}

namespace {

measure::ExchangeSetup read_head_counts(std::string_view option, const std::string& text,
                                        measure::ExchangeSetup exchange) {
  const std::vector<std::int64_t> heads = read_size_list(option, text);
  PLAIT_CHECK(heads.size() <= 2, option, " ", text,
              " is not a number of heads and one of kv heads");
  exchange.heads = heads.front();
  exchange.kv_heads = heads.back();
  return exchange;
}

}  // namespace

void add_heads_option(Options& options, measure::ExchangeSetup& exchange) {
  options.add(
      "--heads", "H[,KV]", exchange,
      [of = exchange](std::string_view option, const std::string& text) {
        return read_head_counts(option, text, of);
      },
      exchange.product_first
          ? "heads, and kv heads: the columns are those of q, k and v (default:\n"
            "equal shares of columns)"
          : "heads, and kv heads: a rank has the columns of its heads (default:\n"
            "equal shares of k)");
}

std::vector<Plan> read_plans(const measure::ExchangeSetup& exchange, const PlanOptions& plans,
                             const std::string& parts) try {
  return read_plans(exchange.like(), plans, parts);
} catch (const Error& error) {
  throw ops::in_words_of(exchange.name(), error);
}

}  // namespace plait::cli
