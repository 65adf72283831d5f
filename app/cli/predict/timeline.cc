#include "cli/predict/timeline.h"

#include <fmt/format.h>

#include <cstddef>
#include <string>

#include "base/text.h"
#include "plait/trace.h"
#include "report/page.h"
#include "report/picture.h"
#include "trace/pack.h"

namespace plait::cli {
namespace {

report::Timeline timeline_of(const OpPredictOptions& options, const OpPrediction& prediction,
                             const std::vector<PlanRecords>& plans) {
  report::Timeline timeline = {
      .title = fmt::format("{}, m={} n={} k={}, {} by {}", options.op.name(), prediction.size.m,
                           prediction.size.n, prediction.size.k, name(options.problem.x),
                           options.weight),
      .subtitle =
          fmt::format("Predicted: {}, {}; {}",
                      base::show_count(static_cast<std::size_t>(options.machine.ranks), "rank"),
                      options.machine.device.name, predict::describe(options.machine.network)),
      .product = static_cast<std::int64_t>(prediction.product),
      .collective = static_cast<std::int64_t>(prediction.collective)};
  for (std::size_t i = 0; i < plans.size(); ++i) {
    timeline.runs.push_back(report::run_of(name(options.plans[i]), plans[i].ranks,
                                           {.begin = 0, .end = plans[i].length}));
    if (i > 0) timeline.runs.back().efficiency = prediction.efficiency(i);
  }
  return timeline;
}

void append(trace::RankRecords& all, const trace::RankRecords& one, std::int64_t from) {
  const auto first_label = static_cast<std::uint32_t>(all.labels.size());
  all.labels.insert(all.labels.end(), one.labels.begin(), one.labels.end());
  for (trace::Record record : one.records) {
    record.label += first_label;
    record.begin += from;
    record.end += from;
    all.records.push_back(record);
  }
}

// Writes plans one after another on one axis, each below a flight with its name.
void write_for_perfetto(const OpPredictOptions& options, const std::vector<PlanRecords>& plans) {
  std::vector<std::vector<std::byte>> packs;
  for (int rank = 0; rank < options.machine.ranks; ++rank) {
    trace::RankRecords all = {.rank = rank};
    std::int64_t from = 0;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      append(all, plans[i].ranks[static_cast<std::size_t>(rank)], from);
      all.labels.push_back(name(options.plans[i]));
      all.records.push_back({.kind = trace::Kind::flight,
                             .lane = Lane::compute,
                             .thread = 0,
                             .label = static_cast<std::uint32_t>(all.labels.size() - 1),
                             .begin = from,
                             .end = from + plans[i].length});
      from += plans[i].length + plans[i].length / 10;
    }
    packs.push_back(trace::pack(all));
  }
  write_json(options.files.trace, packs);
}

}  // namespace

void write_timelines(const OpPredictOptions& options, const OpPrediction& prediction,
                     const std::vector<PlanRecords>& plans) {
  if (!options.files.trace.empty()) write_for_perfetto(options, plans);
  if (!options.files.draws()) return;
  const report::Timeline timeline = timeline_of(options, prediction, plans);
  if (!options.files.html.empty()) write_file(options.files.html, report::page(timeline));
  if (!options.files.svg.empty()) write_file(options.files.svg, report::picture_file(timeline));
}

}  // namespace plait::cli
