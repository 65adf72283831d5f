// plait predict --measured FILE: compares measurements of plait bench with predictions made from
// the product and the collective alone.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/output_files.h"
#include "cli/predict/predict_options.h"
#include "cli/predict/predictions.h"
#include "cli/predict/report.h"
#include "cli/table.h"
#include "cli/values.h"
#include "comm/session/transports.h"

namespace plait::cli {
namespace {

constexpr double kNear = 0.1;  // the largest acceptable error of a prediction

constexpr const char* kPurpose =
    "Predicts what plait bench OPERATOR has measured over emulated links, or over a network\n"
    "between hosts, whose figures are given as options. A modelled processor runs the measured\n"
    "plans: it multiplies as fast as the product alone. It copies and sums as fast as the\n"
    "collective alone without its link, or in the rest of the collective's processor work.";

constexpr const char* kExamples =
    "Exit status: 0 done; 1 a file can't be written; 2 wrong usage.\n\n"
    "Examples:\n"
    "  plait bench matmul-all-reduce --m 1024 --n 4096 --k 4096 --link ratio=1 --json bench.json\n"
    "  plait predict --measured bench.json\n"
    "  plait predict --measured hosts.json --link 2gbit,8us --processor-per-gb 0.45\n";

// A network between hosts, over which ranks were measured without an emulated link.
struct HostNetwork {
  std::string link = {};
  std::optional<double> processor_per_gb = {};  // seconds
  std::optional<double> memory = {};            // GB/s of copies and sums
};

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
  bool has_dtypes;  // of its result and its wire
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

bool has_dtypes(const Json& json) { return json.contains("out") && json.contains("wire"); }

// Values that an older measurement does not record have plait bench's defaults.
predict::Problem read_problem(const Json& json) {
  const auto op = parse_operator(json.at("op").get<std::string>());
  PLAIT_CHECK(op, "there is no operator ", json.at("op").get<std::string>());
  const Dtype x = read_dtype("dtype", json.at("dtype").get<std::string>());
  const bool sums = traits_of(*op).shares_k && json.contains("wire");
  return {.op = *op,
          .m = read_between<std::int64_t>(json, "m", 1, kLargestSize),
          .n = read_between<std::int64_t>(json, "n", 1, kLargestSize),
          .k = read_between<std::int64_t>(json, "k", 1, kLargestSize),
          .x = x,
          .out = json.contains("out") ? read_dtype("out", json.at("out").get<std::string>()) : x,
          .wire = sums ? read_wire("wire", json.at("wire").get<std::string>()) : Dtype::f32,
          .weight_bytes = weight_bytes(json.at("weight").get<std::string>(), x)};
}

// The network of a measurement: its emulated link, or the one between hosts.
predict::Network network_of(const Json& json, const HostNetwork& hosts) {
  if (json.at("link").is_string()) {
    PLAIT_CHECK(hosts.link.empty() && !hosts.processor_per_gb, "the measured ",
                json.at("op").get<std::string>(), " has the emulated link ",
                json.at("link").get<std::string>(),
                "; --link and --processor-per-gb are for measurements between hosts");
    return {.link = parse_link(json.at("link").get<std::string>()),
            .wiring = predict::Wiring::pairs};
  }
  const auto transport = json.at("transport").get<std::string>();
  PLAIT_CHECK(comm::crosses_hosts(transport), "the measured ", json.at("op").get<std::string>(),
              " has no link, and ran over ", transport,
              "; only measurements with a link or between hosts can be predicted");
  PLAIT_CHECK(!hosts.link.empty() && hosts.processor_per_gb, "the measured ",
              json.at("op").get<std::string>(), " ran over ", transport,
              "; give the network between its hosts by --link and --processor-per-gb");
  predict::Network network = predict::find_network(hosts.link);
  network.processor_ns_per_byte = *hosts.processor_per_gb;
  return network;
}

// A processor that multiplies at the measured rate, and moves bytes in no time.
predict::Machine multiplying(const Json& json, const predict::Problem& problem) {
  predict::Machine machine = {.device = predict::find_device("cpu"),
                              .network = {},
                              .ranks = read_between(json, "ranks", 1, kMostPredictedRanks)};
  machine.network.link = {.bytes_per_second = std::numeric_limits<double>::infinity()};
  machine.device.launch = 0;
  machine.device.attained = machine.device.memory_share = 1;
  machine.device.peak_memory = std::numeric_limits<double>::infinity();
  machine.device.peak_flops = 1e12;
  const auto alone = static_cast<double>(product_alone(machine, problem));
  machine.device.peak_flops *= alone / (read_between(json, "t_gemm_ms", 1e-6, kLongest) * 1e6);
  return machine;
}

// The rate at which bytes are copied and summed: as fast as the collective did without a link,
// because then nothing takes time but the network's work.
double moving_rate(const Json& json, const predict::Problem& problem, predict::Machine machine,
                   const predict::Network& network) {
  const Plan serial = {.schedule = Schedule::serial};
  const auto collective = [&] {
    return predict::predict(machine, problem, serial, {.product = false});
  };
  constexpr double kSome = 1e9;
  const auto fixed = static_cast<double>(collective().time);
  machine.network.processor_ns_per_byte = network.processor_ns_per_byte;
  const auto network_work = static_cast<double>(collective().network_work);
  machine.network.processor_ns_per_byte = 0;
  machine.device.peak_memory = kSome;
  const double moving = static_cast<double>(collective().time) - fixed;
  const auto measured = read_between(json, "t_comm_cpu_ms", 0.0, kLongest);
  const double left = measured * 1e6 - fixed - network_work;
  PLAIT_CHECK(left > 0 || network_work == 0, "the collective took ", measured,
              " ms of processor time, which is less than --processor-per-gb ",
              network.processor_ns_per_byte,
              " makes of its bytes; --memory gives the rate of "
              "copies and sums");
  PLAIT_CHECK(left > 0, "the collective took ", measured,
              " ms, which is less than its chunks alone take");
  return kSome * moving / left;
}

predict::Machine fitted(const Json& json, const predict::Problem& problem,
                        const HostNetwork& hosts) {
  const predict::Network network = network_of(json, hosts);
  predict::Machine machine = multiplying(json, problem);
  machine.device.peak_memory =
      hosts.memory ? *hosts.memory * 1e9 : moving_rate(json, problem, machine, network);
  machine.network = network;
  return machine;
}

Case read_case(const Json& json, const HostNetwork& hosts) {
  const predict::Problem problem = read_problem(json);
  Case one = {.problem = problem,
              .machine = fitted(json, problem, hosts),
              .weight = json.at("weight").get<std::string>(),
              .has_dtypes = has_dtypes(json)};
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

std::vector<Case> read_cases(const std::string& path, const HostNetwork& hosts) {
  std::ifstream file = open_input("--measured", path);
  try {
    const Json json = Json::parse(file);
    std::vector<Case> cases;
    if (json.is_array()) {
      for (const Json& one : json) cases.push_back(read_case(one, hosts));
    } else {
      cases.push_back(read_case(json, hosts));
    }
    return cases;
  } catch (const Json::exception&) {
    base::fail(Code::invalid_argument, "--measured ", path,
               " was not written by plait bench OPERATOR --json");
  } catch (const Error& error) {
    base::fail(error.code(), "--measured ", path, ": ", error.what());
  }
}

// The assumptions beside the measurements.
std::string show_assumed(const std::vector<Case>& cases, const HostNetwork& hosts) {
  std::string text = std::string(kItIsAPrediction) +
                     "\nThe modelled processor multiplies, copies and sums as fast as product and "
                     "collective alone\nwere measured.\n";
  if (hosts.memory) text += fmt::format("It copies and sums {:g} GB/s, as given.\n", *hosts.memory);
  if (hosts.processor_per_gb && !cases.empty())
    text += predict::describe(cases.front().machine.network) + '\n';
  if (!std::all_of(cases.begin(), cases.end(), [](const Case& one) { return one.has_dtypes; }))
    text +=
        "Values that a measurement does not record have plait bench's defaults:\nout in x's dtype, "
        "partial sums in f32.\n";
  return text + '\n';
}

std::string show_text(const std::vector<Case>& cases, const HostNetwork& hosts) {
  std::string text = show_assumed(cases, hosts);
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
                      {"processor_s_per_gb", one.machine.network.processor_ns_per_byte},
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
  HostNetwork hosts;
  OutputFiles files;
  Options options({.verb = "predict",
                   .usage = "--measured FILE[,FILE...] [OPTIONS]",
                   .purpose = kPurpose,
                   .examples = kExamples});
  options.add("--measured", "FILE[,FILE...]", measured,
              "files written by plait bench OPERATOR --json");
  options.add("-l,--link", "LINK", hosts.link,
              "the network between hosts over which was measured, such as 2gbit,8us");
  add_processor_option(options, hosts.processor_per_gb, "needed with --link");
  add_memory_option(options, hosts.memory, "default: what the collective attained");
  add_json_option(options, files);
  if (!options.parse_all(words)) return kDone;
  PLAIT_CHECK(!measured.empty(), "--measured FILE is missing");
  std::vector<Case> cases;
  for (const std::string& path : read_list("--measured", measured)) {
    check_distinct(files, {{"the measurements", path}});
    for (Case& one : read_cases(path, hosts)) cases.push_back(std::move(one));
  }
  if (!files.silences()) answer(show_text(cases, hosts));
  files.write_json(show_json(cases));
  return kDone;
}

}  // namespace plait::cli
