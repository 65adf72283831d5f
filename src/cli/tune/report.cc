#include "cli/tune/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/table.h"

namespace plait::cli {
namespace {

double speedup(const plan::PlanCache::Entry& entry) {
  return static_cast<double>(entry.serial) / std::max(static_cast<double>(entry.nanoseconds), 1.0);
}

}  // namespace

std::string show_plans(const plan::PlanCache& cache) {
  Table table({"problem", "plan", "time", "serial", "speed-up"}, /*left=*/2);
  for (const auto& [key, entry] : cache.entries()) {
    table.add({key, name(entry.plan), base::show_duration(entry.nanoseconds),
               base::show_duration(entry.serial), fmt::format("{:.2f}", speedup(entry))});
  }
  return table.text();
}

nlohmann::ordered_json plans_json(const plan::PlanCache& cache, const std::string& path) {
  using Json = nlohmann::ordered_json;
  Json problems = Json::array();
  for (const auto& [key, entry] : cache.entries()) {
    problems.push_back({{"problem", key},
                        {"plan", name(entry.plan)},
                        {"ms", static_cast<double>(entry.nanoseconds) * 1e-6},
                        {"serial_ms", static_cast<double>(entry.serial) * 1e-6},
                        {"speedup", speedup(entry)}});
  }
  return {{"cache", path}, {"machine", cache.machine()}, {"problems", std::move(problems)}};
}

std::string show_profile(const plan::MachineProfile& profile) {
  std::string text = fmt::format(
      "{}\n{} of {}{}\n\n",
      profile.is_measured() ? profile.machine : "figures of no particular machine",
      base::show_count(profile.ranks, "rank"), base::show_count(profile.threads, "thread"),
      profile.hosts > 1 ? fmt::format(" on {} hosts", profile.hosts) : "");
  Table table({"product", "rows", "GF/s"}, /*left=*/1);
  for (const plan::ProductRate& rate : profile.products)
    table.add({rate.kind, std::to_string(rate.rows), fmt::format("{:.1f}", rate.flops_per_ns)});
  text += table.text();
  for (const plan::TransportFigures& one : profile.transports) {
    text += fmt::format("\n{}: {} per message", one.name, show_time(one.latency));
    if (one.bytes_per_ns > 0) text += fmt::format(", {:.2f} GB/s", one.bytes_per_ns);
  }
  for (const plan::KeptSums& one : profile.kept)
    text += fmt::format("\n{} of waiting sums: copies and sums take {:.2f} times as long",
                        base::show_bytes(static_cast<double>(one.bytes)), one.times);
  return text +
         fmt::format(
             "\ncopies {:.1f} GB/s, sums {:.1f} GB/s, {:.2f} times as long during a product\n"
             "per chunk {}, per product at least {}, {:.0f} % slower in windows of 64 columns\n"
             "predictions may be off by {:.0f} %\n",
             profile.copy, profile.sum, profile.beside, show_time(profile.chunk),
             show_time(profile.start), 100 * profile.narrow, 100 * profile.uncertainty);
}

}  // namespace plait::cli
