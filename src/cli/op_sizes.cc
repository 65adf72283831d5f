#include "cli/op_sizes.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "base/text.h"
#include "cli/options.h"
#include "cli/values.h"
#include "ops/checks.h"
#include "plait/quantized.h"

namespace plait::cli {
namespace {

std::vector<std::int64_t> read_numbers(const std::string& option, const std::string& text) {
  PLAIT_CHECK(!text.empty(), option, " is missing; give --m, --n and --k, or --shapes FILE");
  std::vector<std::int64_t> sizes;
  for (const std::string& item : read_list(option, text))
    sizes.push_back(read_number(option, item, 1, kLargestSize));
  return sizes;
}

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

}  // namespace

void add_options(Options& options, SizeWords& words) {
  options.add("-m,--m", "M[,M...]", words.m, "rows of the whole problem");
  options.add("-n,--n", "N[,N...]", words.n, "columns of the whole problem");
  options.add("-k,--k", "K[,K...]", words.k,
              "terms of each sum, in the whole problem; several sizes run one after\n"
              "another");
  options.add("--shapes", "FILE", words.shapes, "file of sizes, with one line \"m n k\" for each");
}

void add_options(Options& options, PlanWords& words, const std::string& parts) {
  options.add("--schedule", "NAME[,...]|all", words.schedule,
              "schedules: serial, pipelined, fused (default: all of the operator)");
  options.add("--parts", "N[,N...]", words.parts,
              "parts of pipelined plans (default: " + parts + ")");
  options.add("--plan", "PLAN[;PLAN...]", words.plans,
              "plans in place of --schedule, such as \"fused chunk=256\"");
}

std::vector<measure::OpSize> read_sizes(const SizeWords& words) {
  if (!words.shapes.empty()) {
    PLAIT_CHECK(words.m.empty() && words.n.empty() && words.k.empty(), "--shapes ", words.shapes,
                " cannot be combined with --m, --n or --k");
    return read_shapes_file(words.shapes);
  }
  const auto m = read_numbers("--m", words.m);
  const auto n = read_numbers("--n", words.n);
  const auto k = read_numbers("--k", words.k);
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

std::vector<Plan> read_plans(Operator op, const PlanWords& words, const std::string& parts) {
  std::vector<Plan> plans = {{.schedule = Schedule::serial}};
  const auto add = [&](const Plan& plan) {
    if (std::find(plans.begin(), plans.end(), plan) == plans.end()) plans.push_back(plan);
  };
  if (!words.plans.empty()) {
    PLAIT_CHECK(words.schedule.empty(), "--plan cannot be combined with --schedule ",
                words.schedule);
    PLAIT_CHECK(words.parts.empty(), "--plan cannot be combined with --parts ", words.parts);
    for (const std::string_view text : base::split(words.plans, ';')) {
      const Plan plan = parse_plan(text);
      ops::check_plan(op, plan);
      add(plan);
    }
    return plans;
  }
  for (const std::string& word :
       read_list("--schedule", words.schedule.empty() ? "all" : words.schedule)) {
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

void check_weight_kind(const std::string& text) {
  PLAIT_CHECK(text == "plain" || is_packed_kind(text), "--weight ", text,
              " is not a weight; give f32, bf16, f16, plain, or a scheme such as s8:channel or "
              "s4:group=64");
}

}  // namespace plait::cli
