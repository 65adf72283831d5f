// plait predict experts: predicts a layer of experts on other machines.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/bench/experts_words.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/output_files.h"
#include "cli/predict/predict_options.h"
#include "cli/predict/predictions.h"
#include "cli/predict/report.h"
#include "cli/table.h"
#include "cli/values.h"
#include "measure/experts_case.h"
#include "measure/memory.h"
#include "predict/experts.h"

namespace plait::cli {
namespace {

constexpr Options::About kAbout = {
    .verb = "predict experts",
    .usage = "[OPTIONS]",
    .purpose =
        "Predicts a model's layer of experts on other devices and networks: serial, fused, and\n"
        "the longer of its products and its exchange, below which neither can go. Modelled ranks\n"
        "with simulated clocks run the layer itself, by rows whose experts are drawn as plait\n"
        "bench experts draws them. Nothing is measured or multiplied.",
    .examples =
        "Exit status: 0 done; 1 a file can't be written; 2 wrong usage.\n\n"
        "Examples:\n"
        "  plait predict experts --model qwen3-30b-a3b --tokens 4096 --device h100\n"
        "  plait predict experts --skew 4:1 --device cpu --link 25gbit,5us --ranks 2\n"
        "  plait predict experts --replicated --tokens 16 --ranks 4\n"};

// Each rank's slots are memory of this process.
constexpr int kMostRanks = 64;

struct Asked {
  std::vector<measure::ExpertsModel> models = measure::experts_models();
  std::vector<std::int64_t> tokens = {512};
  std::vector<std::string> skews = measure::experts_skews();
  bool replicated = false;
  Dtype dtype = Dtype::bf16;
  predict::Machine machine;
  OutputFiles files;
};

struct ExpertsPrediction {
  std::string model;
  std::int64_t tokens;
  std::string skew;
  double compute, exchange, serial, fused;  // nanoseconds

  double ideal() const { return std::max(compute, exchange); }
  // Nothing if almost nothing could be hidden.
  std::optional<double> efficiency() const {
    constexpr double kNextToNothing = 0.02;
    const double hidden_at_best = serial - ideal();
    if (hidden_at_best < kNextToNothing * serial) return std::nullopt;
    return (serial - fused) / hidden_at_best;
  }
};

std::optional<Asked> read_options(Words words) {
  Asked asked;
  MachineOptions machine;
  Options options(kAbout);
  options.add("--model", "NAME[,...]", asked.models, read_experts,
              "qwen3-30b-a3b, deepseek-v2-lite, gpt-oss-quarter (its width divided by\n"
              "four; default: all)");
  options.offer(experts_words());
  options.add("--tokens", sizes("T[,T...]"), asked.tokens, "tokens of each rank (default: 512)");
  options.add("--skew", "SKEW[,...]", asked.skews, read_experts_skews,
              "how experts are drawn, as in plait bench experts (default: all)");
  options.offer(measure::experts_skews());
  options.add_flag("--replicated", asked.replicated,
                   "all ranks have the same tokens, as in decoding");
  options.add("--dtype|-d", kDtype, asked.dtype, "dtype of all (default: bf16)");
  add_options(options, machine, "--ranks");
  add_json_option(options, asked.files);
  if (!options.parse_all(words)) return std::nullopt;
  asked.machine = machine_of(machine);
  PLAIT_CHECK(asked.machine.ranks <= kMostRanks, "--ranks ", asked.machine.ranks,
              ": a layer of experts is predicted for at most ", kMostRanks);
  check_rate_is_known(asked.dtype, asked.machine, machine);
  return asked;
}

// Ranks keep what travels, since they read their numbers of rows from it: a row for each slot, its
// result where it is made, and again where it is added, and about so many bytes of numbers.
constexpr double kBytesOfASlot = 64;

void check_rows_fit(const Asked& asked, const measure::ExpertsModel& model, std::int64_t tokens) {
  const double slots = static_cast<double>(asked.machine.ranks) * static_cast<double>(tokens) *
                       static_cast<double>(model.top);
  const double travelling = asked.replicated ? slots / asked.machine.ranks : slots;
  const double row = static_cast<double>(model.k) * static_cast<double>(size_of(asked.dtype));
  measure::check_memory(3 * travelling * row + slots * kBytesOfASlot,
                        base::sentence("a prediction with --tokens ", tokens));
}

predict::ExpertsProblem problem_of(const Asked& asked, const measure::ExpertsModel& model,
                                   std::int64_t tokens, const std::string& skew) {
  predict::ExpertsProblem problem = {.desc = measure::describe(model, asked.dtype),
                                     .rows = tokens,
                                     .ids = {},
                                     .replicated = asked.replicated};
  const int ranks = asked.machine.ranks;
  const auto weights = measure::experts_weights(skew, model, ranks);
  for (int rank = 0; rank < (asked.replicated ? 1 : ranks); ++rank)
    problem.ids.push_back(measure::draw_experts(model, tokens, weights, 1U + unsigned(rank)));
  return problem;
}

ExpertsPrediction predict_one(const Asked& asked, const measure::ExpertsModel& model,
                              std::int64_t tokens, const std::string& skew) {
  const predict::ExpertsProblem problem = problem_of(asked, model, tokens, skew);
  const auto time = [&](Schedule schedule, bool product = true) {
    return static_cast<double>(
        predict::predict(asked.machine, problem, schedule, {.product = product}).time);
  };
  return {.model = model.name,
          .tokens = tokens,
          .skew = skew,
          .compute = static_cast<double>(products_alone(asked.machine, problem)),
          .exchange = time(Schedule::serial, false),
          .serial = time(Schedule::serial),
          .fused = time(Schedule::fused)};
}

std::string show(const Asked& asked, const std::vector<ExpertsPrediction>& predictions) {
  Table table({"model", "tokens", "skew", "products", "exchange", "serial", "fused", "speed-up",
               "efficiency"},
              /*left=*/1);
  for (const ExpertsPrediction& one : predictions) {
    const auto efficiency = one.efficiency();
    table.add({one.model, fmt::to_string(one.tokens), one.skew, show_time(one.compute),
               show_time(one.exchange), show_time(one.serial), show_time(one.fused),
               fmt::format("{:.3f}", one.serial / one.fused),
               efficiency ? fmt::format("{:.2f}", *efficiency) : "-"});
  }
  return fmt::format("{}\n\na layer of experts  x={}{}\n{}\n{}", kItIsAPrediction,
                     name(asked.dtype), asked.replicated ? "  all ranks have the same rows" : "",
                     show_assumptions(asked.machine), table.text());
}

nlohmann::ordered_json as_json(const Asked& asked,
                               const std::vector<ExpertsPrediction>& predictions) {
  const auto ms = [](double nanoseconds) { return nanoseconds * 1e-6; };
  Json list = Json::array();
  for (const ExpertsPrediction& one : predictions) {
    const auto efficiency = one.efficiency();
    list.push_back({{"model", one.model},
                    {"tokens", one.tokens},
                    {"skew", one.skew},
                    {"products_ms", ms(one.compute)},
                    {"exchange_ms", ms(one.exchange)},
                    {"serial_ms", ms(one.serial)},
                    {"fused_ms", ms(one.fused)},
                    {"overlap_efficiency", efficiency ? Json(*efficiency) : Json()}});
  }
  return {{"prediction", true},
          {"layer", "experts"},
          {"ranks", asked.machine.ranks},
          {"dtype", name(asked.dtype)},
          {"replicated", asked.replicated},
          {"device", asked.machine.device.name},
          {"results", std::move(list)},
          {"assumptions", assumptions_json(asked.machine)}};
}

}  // namespace

int predict_experts(Words words) {
  const auto asked = read_options(words);
  if (!asked) return kDone;
  for (const measure::ExpertsModel& model : asked->models)
    for (const std::int64_t tokens : asked->tokens) check_rows_fit(*asked, model, tokens);
  check_writable(asked->files);
  std::vector<ExpertsPrediction> predictions;
  for (const measure::ExpertsModel& model : asked->models) {
    for (const std::int64_t tokens : asked->tokens) {
      for (const std::string& skew : asked->skews)
        predictions.push_back(predict_one(*asked, model, tokens, skew));
    }
  }
  if (!asked->files.silences()) answer(show(*asked, predictions));
  asked->files.write_json(as_json(*asked, predictions));
  return kDone;
}

}  // namespace plait::cli
