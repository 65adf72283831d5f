#include "cli/tune/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/json.h"
#include "cli/table.h"

namespace plait::cli {
namespace {

double speedup(const plan::PlanCache::Entry& entry) {
  return static_cast<double>(entry.serial) / std::max(static_cast<double>(entry.nanoseconds), 1.0);
}

// The effect of caches.
std::string show_kept(const plan::MachineProfile& profile) {
  if (profile.kept.empty()) return "";
  Table table({"partial sums that wait", "time of copies and sums"}, /*left=*/0);
  for (const plan::KeptSums& one : profile.kept) {
    table.add({base::show_bytes(static_cast<double>(one.bytes)),
               fmt::format("{:.2f} times as long", one.times)});
  }
  return "After a product, the time of copies and sums depends on how many partial sums a rank "
         "has to\nkeep. It is compared with the time without a product:\n\n" +
         table.text() + "\n";
}

std::string show_error(const plan::MachineProfile& profile) {
  if (is_disturbed(profile)) {
    return fmt::format(
        "Other programs disturbed the measurement: repeat it when the machine is quiet (plait "
        "tune\n--profile). Until then the model's error counts as {:.0f} % of the time of copies, "
        "sums and waits.\n",
        100 * profile.uncertainty);
  }
  return fmt::format("The model's error is up to {:.0f} % of the time of copies, sums and waits.\n",
                     100 * profile.uncertainty);
}

}  // namespace

bool is_disturbed(const plan::MachineProfile& profile) {
  return profile.is_measured() && profile.uncertainty >= plan::kElsewhere;
}

std::string show_plans(const plan::PlanCache& cache) {
  Table table({"problem", "plan", "time", "serial", "speed-up"}, /*left=*/2);
  for (const auto& [key, entry] : cache.entries()) {
    table.add({key, name(entry.plan), base::show_duration(entry.nanoseconds),
               base::show_duration(entry.serial), fmt::format("{:.2f}", speedup(entry))});
  }
  return table.text();
}

nlohmann::ordered_json plans_json(const plan::PlanCache& cache, const std::string& path) {
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
      "{}\n{} of {}{}, all at work. Each of them multiplies at these rates:\n\n",
      profile.is_measured() ? profile.machine : "figures of no particular machine",
      base::show_count(profile.ranks, "rank"), base::show_count(profile.threads, "thread"),
      profile.hosts > 1 ? fmt::format(" on {} hosts", profile.hosts) : "");
  Table products({"weight", "rows of X", "GFLOP/s"}, /*left=*/1);
  for (const plan::ProductRate& rate : profile.products)
    products.add({rate.kind, std::to_string(rate.rows), fmt::format("{:.1f}", rate.flops_per_ns)});
  text += products.text() +
          fmt::format(
              "\nThe smallest product takes {}. A product takes {:.0f} % longer in windows of 64 "
              "columns than\nin one piece.\n",
              show_time(profile.start), 100 * profile.narrow);
  for (const plan::TransportFigures& one : profile.transports) {
    text += fmt::format("A message over {} takes {}", one.name, show_time(one.latency));
    text += one.bytes_per_ns > 0
                ? fmt::format(", and large ones travel at {:.2f} GB/s.\n", one.bytes_per_ns)
                : ".\n";
  }
  text += fmt::format(
      "A rank copies {:.1f} GB/s to another. While it sums, it reads and writes {:.1f} GB/s.\n"
      "Each chunk takes {} in addition. During a product, copies and sums take {:.2f} times as "
      "long as\n"
      "between products.\n",
      profile.copy, profile.sum, show_time(profile.chunk), profile.beside);
  return text + show_kept(profile) + show_error(profile);
}

}  // namespace plait::cli
