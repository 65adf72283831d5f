// plait predict OPERATOR.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "cli/predict/predictions.h"
#include "cli/predict/report.h"
#include "cli/predict/timeline.h"
#include "cli/speech.h"

namespace plait::cli {
namespace {

OpPrediction predict_plans(const OpPredictOptions& options, const OpSize& size,
                           std::vector<PlanRecords>& records) {
  predict::Problem problem = options.problem;
  problem.m = size.m;
  problem.n = size.n;
  problem.k = size.k;
  OpPrediction prediction = {
      .size = size,
      .product = static_cast<double>(product_alone(options.machine, problem)),
      .collective = static_cast<double>(
          predict::predict(options.machine, problem, options.plans.front(), {.product = false})
              .time),
      .plans = {}};
  for (const Plan& plan : options.plans) {
    predict::Outcome outcome =
        predict::predict(options.machine, problem, plan, {.records = options.traces()});
    prediction.plans.push_back(static_cast<double>(outcome.time));
    if (options.traces()) records.push_back({std::move(outcome.records), outcome.time});
  }
  return prediction;
}

// One problem is an object, several are a list of them.
void write(const OpPredictOptions& options, const std::vector<OpPrediction>& predictions) {
  if (options.json.empty()) return;
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const OpPrediction& one : predictions) json.push_back(show_json(options, one));
  const std::string text = (predictions.size() == 1 ? json.front() : json).dump(2) + "\n";
  if (options.json == "-") return answer(text);
  base::AtomicFile file(options.json);
  file.append(text);
  file.commit();
}

}  // namespace

int predict_operator(Operator op, Words words) {
  const auto options = read_op_predict_options(op, words);
  if (!options) return kDone;
  for (const std::string& file : {options->json, options->trace, options->html, options->svg}) {
    if (!file.empty() && file != "-") base::check_writable(file);
  }
  std::vector<OpPrediction> predictions;
  for (const OpSize& size : options->sizes) {
    std::vector<PlanRecords> records;
    predictions.push_back(predict_plans(*options, size, records));
    if (options->traces()) write_timelines(*options, predictions.back(), records);
    if (options->json == "-") continue;
    if (predictions.size() > 1) answer("\n");
    answer(show_text(*options, predictions.back()));
    if (!options->html.empty()) answer("Timeline: " + options->html + "\n");
    if (!options->svg.empty()) answer("Picture: " + options->svg + "\n");
    if (!options->trace.empty()) answer("For Perfetto: " + options->trace + "\n");
  }
  write(*options, predictions);
  return kDone;
}

}  // namespace plait::cli
