#include "cli/bench/op_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/processor.h"
#include "base/text.h"
#include "cli/bench/oversubscription.h"
#include "cli/bench/timelines.h"
#include "cli/json.h"
#include "cli/table.h"
#include "comm/session/transports.h"
#include "ops/shapes.h"

namespace plait::cli {
namespace {

// More than 1 is noise: product and collective alone were measured at slower moments.
constexpr double kMostShare = 1.1;

// In shared memory the collective is work of the processors that also multiply.
bool has_link(const measure::OpMeasurement& result) {
  return result.link || comm::crosses_hosts(result.transport);
}

// How many times as fast as serial a plan is that hides all of the shorter one.
double possible(const measure::OpMeasurement& result) {
  return (result.product.median + result.collective.median) / result.ideal();
}

// A sentence about the fastest plan, if there are several and it is informative.
std::string show_best(const OpBenchOptions& options, const measure::OpMeasurement& result) {
  const std::string oversubscribed =
      show_oversubscription(result.ranks, options.threads, result.transport);
  if (!result.ns_per_flop && !oversubscribed.empty())
    return oversubscribed + " Use --timed-product for more ranks than cores.\n";
  if (result.plans.size() == 1) return "";
  const auto best = std::min_element(result.plans.begin(), result.plans.end(),
                                     [](const measure::PlanTimes& a, const measure::PlanTimes& b) {
                                       return a.times.median < b.times.median;
                                     });
  if (best == result.plans.begin()) return "\nNo plan is faster than the serial one here.\n";
  std::string text = fmt::format("\nThe plan \"{}\" is {:.2f} times as fast as serial",
                                 name(best->plan), result.speedup(*best));
  const auto efficiency = result.efficiency(*best);
  if (efficiency ? *efficiency > kMostShare
                 : has_link(result) && result.speedup(*best) > possible(result)) {
    return text +
           ", and faster than is possible\nby the times of product and collective alone. Other "
           "programs disturbed the measurement: repeat it.\n";
  }
  if (best->times.median >= result.plans.front().times.min)
    return text + ", which may be noise: serial took no longer in its fastest run.\n";
  if (!efficiency) return text + ".\n";
  return text + fmt::format(": it hides {:.0f} % of what can be hidden.\n",
                            std::min(100 * *efficiency, 100.0));
}

// The machine, and whether products were replaced by waiting.
std::string show_machine(const measure::OpMeasurement& result) {
  std::string text = base::read_processor().model;
  if (result.ns_per_flop) text += ", products waited for";
  return text;
}

// "AMD EPYC; 2 ranks over shm, emulated link, 10 Gbit/s, 5 us"
std::string show_place(const measure::OpMeasurement& result) {
  return fmt::format("{}; {} over {}{}", show_machine(result),
                     base::show_count(static_cast<std::size_t>(result.ranks), "rank"),
                     result.transport, result.link ? ", " + describe(*result.link) : "");
}

double ms(double nanoseconds) { return nanoseconds * 1e-6; }

// Less than 0 means that nothing was hidden.
bool is_share(const std::optional<double>& efficiency) {
  return efficiency && *efficiency >= 0 && *efficiency <= kMostShare;
}

// A share is at most 1; a larger one than kMostShare says nothing.
std::string show_share(const std::optional<double>& efficiency) {
  if (!efficiency) return "-";
  return *efficiency > kMostShare ? "noise" : fmt::format("{:.2f}", std::min(*efficiency, 1.0));
}

}  // namespace

report::Timeline timeline_of(const OpBenchOptions& options, const measure::OpMeasurement& result,
                             const measure::Recorded& recorded) {
  report::Timeline timeline = {
      .title = fmt::format("{}, m={} n={} k={}, {} by {}", options.name(), result.size.m,
                           result.size.n, result.size.k, name(options.x), options.weight),
      .subtitle = show_place(result) + show_clocks(recorded),
      .product = static_cast<std::int64_t>(result.product.median),
      .collective = static_cast<std::int64_t>(result.collective.median),
      .runs = runs_of(options.plans, recorded)};
  // The efficiency of the runs that are drawn, where the medians have one too.
  for (std::size_t i = 1; i < timeline.runs.size(); ++i) {
    report::Run& run = timeline.runs[i];
    const auto drawn = result.efficiency(static_cast<double>(run.length),
                                         static_cast<double>(timeline.runs.front().length));
    if (drawn && is_share(drawn) && is_share(result.efficiency(result.plans[i])))
      run.efficiency = std::min(*drawn, 1.0);
  }
  return timeline;
}

std::string show_text(const OpBenchOptions& options, const measure::OpMeasurement& result) {
  std::string text =
      fmt::format("{}  m={} n={} k={} x={} weight={} out={} wire={}{}\n{}\n\n", options.name(),
                  result.size.m, result.size.n, result.size.k, name(options.x), options.weight,
                  name(options.out), name(ops::wire_of(options.op, options.x, options.wire)),
                  options.chose_wire ? " (automatic between hosts)" : "", show_place(result));
  text += fmt::format("product alone {}, collective alone {}", show_time(result.product.median),
                      show_time(result.collective.median));
  if (has_link(result))
    text += fmt::format(" ({} of it processor work)", show_time(result.collective_cpu.median));
  if (options.link.ratio > 0)
    text += fmt::format("\ncollective / product {:.3g}, requested {:.3g}",
                        result.collective.median / result.product.median, options.link.ratio);
  text +=
      fmt::format("\nideal {}, bound {}\n\n", show_time(result.ideal()), show_time(result.bound()));
  Table table({"plan", "median", "min", "max", "speed-up", "efficiency", "bits"}, /*left=*/1);
  for (const measure::PlanTimes& one : result.plans) {
    table.add({name(one.plan), show_time(one.times.median), show_time(one.times.min),
               show_time(one.times.max), fmt::format("{:.3f}", result.speedup(one)),
               show_share(result.efficiency(one)), one.bits_equal ? "equal" : "DIFFER"});
  }
  return text + table.text() + show_best(options, result);
}

nlohmann::ordered_json show_json(const OpBenchOptions& options,
                                 const measure::OpMeasurement& result) {
  Json schedules = Json::array();
  for (const measure::PlanTimes& one : result.plans) {
    const auto efficiency = result.efficiency(one);
    schedules.push_back({{"name", name(one.plan.schedule)},
                         {"plan", name(one.plan)},
                         {"median_ms", ms(one.times.median)},
                         {"min_ms", ms(one.times.min)},
                         {"max_ms", ms(one.times.max)},
                         {"speedup", result.speedup(one)},
                         {"overlap_efficiency", efficiency ? Json(*efficiency) : Json()},
                         {"bits_equal", one.bits_equal}});
  }
  return {{"op", options.name()},
          {"m", result.size.m},
          {"n", result.size.n},
          {"k", result.size.k},
          {"ranks", result.ranks},
          {"dtype", name(options.x)},
          {"weight", options.weight},
          {"out", name(options.out)},
          {"wire", name(ops::wire_of(options.op, options.x, options.wire))},
          {"transport", result.transport},
          {"link", result.link ? Json(name(*result.link)) : Json()},
          {"t_gemm_ms", ms(result.product.median)},
          {"t_comm_ms", ms(result.collective.median)},
          {"t_comm_cpu_ms", ms(result.collective_cpu.median)},
          {"ideal_ms", ms(result.ideal())},
          {"bound_ms", ms(result.bound())},
          {"schedules", std::move(schedules)},
          {"machine", show_machine(result)}};
}

}  // namespace plait::cli
