// plait predict OPERATOR.
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cli/console.h"
#include "cli/predict/predictions.h"
#include "cli/predict/report.h"
#include "cli/predict/timeline.h"
#include "measure/memory.h"
#include "measure/progress.h"

namespace plait::cli {
namespace {

// The bytes that each rank keeps for each other rank, measured with all-reduces, which keep the
// most.
constexpr double kBytesOfAPair = 1100;

void check_ranks_fit(int ranks) {
  measure::check_memory(kBytesOfAPair * ranks * ranks,
                        base::sentence("a prediction with --ranks ", ranks));
}

OpPrediction predict_plans(const OpPredictOptions& options, const measure::OpSize& size,
                           std::vector<PlanRecords>& records) {
  measure::Progress progress("predicting, part");
  const predict::Problem problem = options.problem_of(size);
  OpPrediction prediction = {
      .size = size,
      .product = static_cast<double>(product_alone(options.machine, problem)),
      .collective = static_cast<double>(
          predict::predict(options.machine, problem, options.plans.front(), {.product = false})
              .time)};
  for (const Plan& plan : options.plans) {
    progress.show(std::ssize(prediction.plans) + 1, std::ssize(options.plans) + 1);
    predict::Outcome outcome =
        predict::predict(options.machine, problem, plan, {.records = options.files.traces()});
    prediction.plans.push_back(static_cast<double>(outcome.time));
    if (options.files.traces()) records.push_back({std::move(outcome.records), outcome.time});
  }
  return prediction;
}

// One problem is an object; several are a list of objects.
nlohmann::ordered_json show_json(const OpPredictOptions& options,
                                 const std::vector<OpPrediction>& predictions) {
  if (predictions.size() == 1) return show_json(options, predictions.front());
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const OpPrediction& one : predictions) list.push_back(show_json(options, one));
  return list;
}

}  // namespace

int predict_operator(const MeasuredOperator& op, Words words) {
  const auto options = read_op_predict_options(op, words);
  if (!options) return kDone;
  check_ranks_fit(options->machine.ranks);
  check_writable(options->files);
  std::vector<OpPrediction> predictions;
  for (const measure::OpSize& size : options->sizes) {
    std::vector<PlanRecords> records;
    predictions.push_back(predict_plans(*options, size, records));
    if (options->files.traces()) write_timelines(*options, predictions.back(), records);
    if (options->files.silences()) continue;
    if (predictions.size() > 1) answer("\n");
    answer(show_text(*options, predictions.back()));
    answer(options->files.show());
  }
  options->files.write_json(show_json(*options, predictions));
  return kDone;
}

}  // namespace plait::cli
