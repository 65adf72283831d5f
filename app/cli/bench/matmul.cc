// plait bench matmul: measures a product, next to the peaks of processor and memory.
#include <map>
#include <nlohmann/json.hpp>

#include "base/processor.h"
#include "cli/bench/matmul.h"
#include "cli/bench/measurements.h"
#include "cli/console.h"
#include "measure/limits.h"

namespace plait::cli {
namespace {

// The limits with which the cases are compared.
struct Limits {
  std::map<Dtype, measure::Limit> multiplying;    // by operand
  std::map<std::size_t, measure::Limit> reading;  // by the bytes of the weight
};

Limits limits_of(const std::vector<measure::MatmulCase>& cases, int threads) {
  Limits limits;
  for (const measure::MatmulCase& one : cases) {
    if (!limits.multiplying.contains(one.operand()))
      limits.multiplying[one.operand()] = measure::multiplying(one.operand(), threads);
    if (is_bound_by_reading(one) && !limits.reading.contains(one.weight_bytes()))
      limits.reading[one.weight_bytes()] = measure::reading(one.weight_bytes(), threads);
  }
  return limits;
}

// The products come first, then the limits, all in one race.
void measure_all(MatmulReport& report, const std::vector<measure::MatmulCase>& cases) {
  measure::MatmulOperands operands(report.options);
  const Limits limits = limits_of(cases, report.options.threads);
  std::vector<measure::Contender> contenders;
  contenders.reserve(cases.size() + limits.multiplying.size() + limits.reading.size());
  for (const measure::MatmulCase& one : cases) contenders.push_back(operands.call_of(one));
  for (const auto& [operand, limit] : limits.multiplying) contenders.push_back(limit.call);
  for (const auto& [bytes, limit] : limits.reading) contenders.push_back(limit.call);
  const std::vector<measure::Times> times = measure::race(contenders, report.options.effort);
  auto next = times.begin();
  for (const measure::MatmulCase& one : cases)
    report.results.push_back({.what = one, .times = *next++});
  // The best time of a limit is its value.
  for (const auto& [operand, limit] : limits.multiplying)
    report.peaks[operand] = {.by = limit.by, .flops = limit.amount / (next++)->min * 1e9};
  for (const auto& [bytes, limit] : limits.reading)
    report.reads[bytes] = limit.amount / (next++)->min * 1e9;
}

}  // namespace

int bench_matmul(Words words) {
  const auto options = read_matmul_options(words);
  if (!options) return kDone;
  check_writable(options->files);
  const std::vector<measure::MatmulCase> cases = measure::matmul_cases(*options);
  MatmulReport report = {.options = *options, .processor = base::read_processor().model};
  measure_all(report, cases);
  if (!options->files.silences()) answer(show_text(report));
  options->files.write_json(show_json(report));
  return kDone;
}

}  // namespace plait::cli
