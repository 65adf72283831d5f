// plait predict --measured FILE: compares measurements of plait bench with predictions made from
// the product and the collective alone.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/output_files.h"
#include "cli/predict/predict_options.h"
#include "cli/predict/predictions.h"
#include "cli/predict/report.h"
#include "cli/table.h"
#include "cli/values.h"

namespace plait::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNear = 0.1;  // the largest acceptable error of a prediction

constexpr const char* kPurpose =
    "Predicts what plait bench OPERATOR has measured over emulated links. A modelled processor\n"
    "runs the measured plans: it multiplies as fast as the product alone, and copies and sums\n"
    "as fast as the collective alone without its link.";

constexpr const char* kExamples =
    "Exit status: 0 done; 1 a file can't be written; 2 wrong usage.\n\n"
    "Examples:\n"
    "  plait bench matmul-all-reduce --m 1024 --n 4096 --k 4096 --link ratio=1 --json bench.json\n"
    "  plait predict --measured bench.json\n";

struct Compared {
  std::string plan;
  double measured;  // milliseconds
  double predicted;

  double error() const { return predicted / measured - 1; }
};

struct Case {
  predict::Problem problem;
  predict::Machine machine;
  std::string weight;
  std::vector<Compared> plans = {};
};

template <class Number>
Number read_between(const Json& json, const char* key, Number least, Number most) {
  const auto number = json.at(key).get<Number>();
  PLAIT_CHECK(number >= least && number <= most, key, " is ", number, ", which is not between ",
              least, " and ", most);
  return number;
}

constexpr double kLongest = 1e9;  // milliseconds

// Values that a measurement does not record have plait bench's defaults.
predict::Problem read_problem(const Json& json) {
  const auto op = parse_operator(json.at("op").get<std::string>());
  PLAIT_CHECK(op, "there is no operator ", json.at("op").get<std::string>());
  const Dtype x = read_dtype("dtype", json.at("dtype").get<std::string>());
  return {.op = *op,
          .m = read_between<std::int64_t>(json, "m", 1, kLargestSize),
          .n = read_between<std::int64_t>(json, "n", 1, kLargestSize),
          .k = read_between<std::int64_t>(json, "k", 1, kLargestSize),
          .x = x,
          .out = x,
          .wire = Dtype::f32,
          .weight_bytes = weight_bytes(json.at("weight").get<std::string>(), x)};
}

// A device that multiplies at the measured rate, and moves bytes as fast as the collective did
// without a link: then nothing else takes time.
predict::Machine fitted(const Json& json, const predict::Problem& problem) {
  const Link link = parse_link(json.at("link").get<std::string>());
  predict::Machine machine = {.device = predict::find_device("cpu"),
                              .network = {.link = link, .wiring = predict::Wiring::pairs},
                              .ranks = read_between(json, "ranks", 1, kMostPredictedRanks)};
  machine.device.launch = 0;
  machine.device.attained = machine.device.memory_share = 1;
  machine.device.peak_memory = std::numeric_limits<double>::infinity();
  machine.device.peak_flops = 1e12;
  const auto alone = static_cast<double>(product_alone(machine, problem));
  machine.device.peak_flops *= alone / (read_between(json, "t_gemm_ms", 1e-6, kLongest) * 1e6);

  predict::Machine linkless = machine;
  linkless.network.link = {.bytes_per_second = std::numeric_limits<double>::infinity()};
  const Plan serial = {.schedule = Schedule::serial};
  const auto collective = [&] {
    return static_cast<double>(
        predict::predict(linkless, problem, serial, {.product = false}).time);
  };
  constexpr double kSome = 1e9;
  const double fixed = collective();
  linkless.device.peak_memory = kSome;
  const double moving = collective() - fixed;
  const double left = read_between(json, "t_comm_cpu_ms", 0.0, kLongest) * 1e6 - fixed;
  PLAIT_CHECK(left > 0, "the collective took ", json.at("t_comm_cpu_ms").get<double>(),
              " ms, which is less than its chunks alone take");
  machine.device.peak_memory = kSome * moving / left;
  return machine;
}

Case read_case(const Json& json) {
  PLAIT_CHECK(json.at("link").is_string(), "the measured ", json.at("op").get<std::string>(),
              " has no link; only measurements with a link can be predicted");
  const predict::Problem problem = read_problem(json);
  Case one = {.problem = problem,
              .machine = fitted(json, problem),
              .weight = json.at("weight").get<std::string>()};
  for (const Json& schedule : json.at("schedules")) {
    const std::string plan = schedule.at("plan").get<std::string>();
    one.plans.push_back(
        {.plan = plan,
         .measured = read_between(schedule, "median_ms", 1e-6, kLongest),
         .predicted =
             static_cast<double>(predict::predict(one.machine, problem, parse_plan(plan)).time) *
             1e-6});
  }
  return one;
}

std::vector<Case> read_cases(const std::string& path) {
  std::ifstream file = open_input("--measured", path);
  try {
    const Json json = Json::parse(file);
    std::vector<Case> cases;
    if (json.is_array()) {
      for (const Json& one : json) cases.push_back(read_case(one));
    } else {
      cases.push_back(read_case(json));
    }
    return cases;
  } catch (const Json::exception&) {
    base::fail(Code::invalid_argument, "--measured ", path,
               " was not written by plait bench OPERATOR --json");
  } catch (const Error& error) {
    base::fail(error.code(), "--measured ", path, ": ", error.what());
  }
}

std::string show_text(const std::vector<Case>& cases) {
  std::string text =
      std::string(kItIsAPrediction) +
      "\nThe modelled processor multiplies, copies and sums as fast as product and collective "
      "alone\nwere measured. Values that a measurement does not record have plait bench's "
      "defaults:\nout in x's dtype, partial sums in f32.\n\n";
  Table table({"operator", "m", "n", "k", "GFLOP/s", "GB/s", "link", "plan", "measured",
               "predicted", "error"},
              /*left=*/1);
  std::vector<double> errors;
  for (const Case& one : cases) {
    for (const Compared& plan : one.plans) {
      errors.push_back(std::abs(plan.error()));
      table.add({std::string(name(one.problem.op)), std::to_string(one.problem.m),
                 std::to_string(one.problem.n), std::to_string(one.problem.k),
                 fmt::format("{:.0f}", one.machine.device.flops() * 1e-9),
                 fmt::format("{:.1f}", one.machine.device.memory() * 1e-9),
                 fmt::format("{:.3g} Gbit/s", one.machine.network.link.bytes_per_second * 8e-9),
                 plan.plan, fmt::format("{:.2f} ms", plan.measured),
                 fmt::format("{:.2f} ms", plan.predicted),
                 fmt::format("{:+.1f} %", 100 * plan.error())});
    }
  }
  if (errors.empty()) return text + table.text();
  std::sort(errors.begin(), errors.end());
  const auto near =
      std::count_if(errors.begin(), errors.end(), [](double error) { return error <= kNear; });
  text += table.text();
  text +=
      fmt::format("\n{} of {} within {:.0f} %; median error {:.1f} %, largest {:.1f} %\n", near,
                  errors.size(), 100 * kNear, 100 * errors[errors.size() / 2], 100 * errors.back());
  return text;
}

Json show_json(const std::vector<Case>& cases) {
  Json list = Json::array();
  for (const Case& one : cases) {
    for (const Compared& plan : one.plans) {
      list.push_back({{"prediction", true},
                      {"op", name(one.problem.op)},
                      {"m", one.problem.m},
                      {"n", one.problem.n},
                      {"k", one.problem.k},
                      {"ranks", one.machine.ranks},
                      {"link_bytes_per_second", one.machine.network.link.bytes_per_second},
                      {"rate_flops", one.machine.device.flops()},
                      {"memory_bytes_per_second", one.machine.device.memory()},
                      {"plan", plan.plan},
                      {"measured_ms", plan.measured},
                      {"predicted_ms", plan.predicted},
                      {"error", plan.error()}});
    }
  }
  return list;
}

}  // namespace

int predict_measured(Words words) {
  std::string measured;
  OutputFiles files;
  Options options({.verb = "predict",
                   .usage = "--measured FILE[,FILE...] [--json FILE]",
                   .purpose = kPurpose,
                   .examples = kExamples});
  options.add("--measured", "FILE[,FILE...]", measured,
              "files written by plait bench OPERATOR --json");
  add_json_option(options, files);
  if (!options.parse_all(words)) return kDone;
  PLAIT_CHECK(!measured.empty(), "--measured FILE is missing");
  std::vector<Case> cases;
  for (const std::string& path : read_list("--measured", measured)) {
    check_distinct(files, {{"the measurements", path}});
    for (Case& one : read_cases(path)) cases.push_back(std::move(one));
  }
  if (!files.silences()) answer(show_text(cases));
  files.write_json(show_json(cases));
  return kDone;
}

}  // namespace plait::cli
