#include "cli/bench/matmul.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/json.h"
#include "cli/table.h"
#include "plait/version.h"

namespace plait::cli {
namespace {

std::string show_giga(double rate) {
  const double giga = rate * 1e-9;
  return giga >= 100 ? fmt::format("{:.0f}", giga) : fmt::format("{:.3g}", giga);
}

std::string show_percent(double part) { return fmt::format("{:.1f}", part * 100); }

std::string show_head(const MatmulReport& report) {
  const MatmulOptions& options = report.options;
  std::string how = fmt::format("{} weight", name(options.layout));
  if (options.columns > 0) how += fmt::format(", windows of {} columns", options.columns);
  if (options.transposed_x) how += ", transposed x";
  if (options.accumulate) how += ", added to the result";
  std::string text = fmt::format("y = x·w  n={} k={} x={} out={}; {}\n{}, {}\n", options.n,
                                 options.k, name(options.x), name(options.out), how,
                                 report.processor, base::show_count(options.threads, "thread"));
  for (const auto& [operand, peak] : report.peaks) {
    text +=
        fmt::format("Peak of {}: {} GFLOP/s ({})\n", name(operand), show_giga(peak.flops), peak.by);
  }
  for (const auto& [bytes, rate] : report.reads) {
    text += fmt::format("Reading {}: {} GB/s\n", base::show_bytes(static_cast<double>(bytes)),
                        show_giga(rate));
  }
  return text;
}

}  // namespace

bool is_bound_by_reading(const measure::MatmulCase& one) {
  constexpr std::int64_t kFewRows = 16;
  constexpr std::size_t kManyBytes = 1 << 20;
  return one.desc.m <= kFewRows && one.weight_bytes() >= kManyBytes;
}

double MatmulResult::flops() const { return what.flops() / times.median * 1e9; }
double MatmulResult::reads() const {
  return static_cast<double>(what.weight_bytes()) / times.median * 1e9;
}

std::string show_text(const MatmulReport& report) {
  std::vector<std::string> head = {"m",   "weight", "backend", "median",
                                   "min", "max",    "GFLOP/s", "% of peak"};
  if (!report.reads.empty()) head.insert(head.end(), {"weight GB/s", "% of reading"});
  Table table(head, /*left=*/3);
  for (const MatmulResult& result : report.results) {
    const Peak& peak = report.peaks.at(result.what.operand());
    std::vector<std::string> row = {fmt::to_string(result.what.desc.m),
                                    result.what.weight,
                                    result.what.backend,
                                    show_time(result.times.median),
                                    show_time(result.times.min),
                                    show_time(result.times.max),
                                    show_giga(result.flops()),
                                    show_percent(result.flops() / peak.flops)};
    if (is_bound_by_reading(result.what)) {
      row.push_back(show_giga(result.reads()));
      row.push_back(show_percent(result.reads() / report.reads.at(result.what.weight_bytes())));
    }
    table.add(row);
  }
  return show_head(report) + '\n' + table.text();
}

nlohmann::ordered_json show_json(const MatmulReport& report) {
  const MatmulOptions& options = report.options;
  Json peaks = Json::object();
  for (const auto& [operand, peak] : report.peaks)
    peaks[std::string(name(operand))] = {{"by", peak.by}, {"flops_per_second", peak.flops}};
  Json reads = Json::array();
  for (const auto& [bytes, rate] : report.reads)
    reads.push_back({{"bytes", bytes}, {"bytes_per_second", rate}});
  Json results = Json::array();
  for (const MatmulResult& result : report.results) {
    const measure::Times& times = result.times;
    const Dtype operand = result.what.operand();
    results.push_back({{"product", name(result.what.desc)},
                       {"m", result.what.desc.m},
                       {"weight", result.what.weight},
                       {"backend", result.what.backend},
                       {"median_ns", times.median},
                       {"min_ns", times.min},
                       {"max_ns", times.max},
                       {"repetitions", times.repetitions},
                       {"calls", times.calls},
                       {"flops_per_second", result.flops()},
                       {"of_peak", result.flops() / report.peaks.at(operand).flops},
                       {"weight_bytes", result.what.weight_bytes()},
                       {"weight_bytes_per_second", result.reads()}});
  }
  return {{"plait", kVersion},
          {"words", options.words},
          {"processor", report.processor},
          {"threads", options.threads},
          {"n", options.n},
          {"k", options.k},
          {"layout", name(options.layout)},
          {"columns", options.columns == 0 ? Json() : Json(options.columns)},
          {"accumulate", options.accumulate},
          {"transposed_x", options.transposed_x},
          {"peaks", std::move(peaks)},
          {"reads", std::move(reads)},
          {"results", std::move(results)}};
}

}  // namespace plait::cli
