#include "cli/bench/step_profile.h"

#include <fmt/format.h>

#include "base/text.h"
#include "cli/json.h"
#include "cli/table.h"
#include "measure/step_case.h"
#include "report/calls.h"

namespace plait::cli {
namespace {

// Adds what calls of operators within these intervals did. A serial plan's collective is recorded
// as a call too, and lies within one of an operator.
void add(const trace::RankRecords& rank, const std::vector<TimeInterval>& intervals,
         LayerProfile& layer) {
  for (const TimeInterval& one : intervals) layer.time += static_cast<double>(one.end - one.begin);
  for (const report::Calls& calls : report::calls_of(rank, intervals)) {
    if (!calls.problem.starts_with("op=")) continue;
    layer.calls += static_cast<double>(calls.count);
    layer.multiplying += static_cast<double>(calls.multiplying);
    layer.communicating += static_cast<double>(calls.communicating);
    layer.waiting += static_cast<double>(calls.waiting);
  }
}

RankProfile profile_of_rank(const measure::StepSetup& setup, const trace::RankRecords& rank,
                            const TimeInterval& run, int world) {
  std::vector<std::vector<TimeInterval>> calls(setup.linears.size());
  std::size_t number = 0;
  for (const TimeInterval& call : measure::layer_calls(rank)) {
    if (call.begin >= run.begin && call.end <= run.end)
      calls[number++ % calls.size()].push_back(call);
  }
  const double steps = measure::steps_of_loop(setup);
  RankProfile profile = {.rank = rank.rank};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    LayerProfile loop;
    add(rank, calls[i], loop);
    LayerProfile layer = {.name = std::string(setup.linears[i].name)};
    layer.add(loop, 1 / steps);
    layer.bytes = static_cast<double>(
        setup.layers * measure::weight_bytes(setup, setup.linears[i], rank.rank, world));
    profile.layers.push_back(layer);
  }
  return profile;
}

// A call that reads less spends its time on other things than memory.
std::string show_share(const StepProfile& profile, const LayerProfile& layer) {
  constexpr double kManyBytes = 1 << 20;  // of a call
  if (layer.bytes < kManyBytes * layer.calls) return "-";
  return base::show_percent(profile.of_reading(layer));
}

// The columns that both tables have, of one of `divisor` calls.
std::vector<std::string> show_parts(const StepProfile& profile, const LayerProfile& layer,
                                    double divisor) {
  return {show_time(layer.time / divisor),    show_time(layer.multiplying / divisor),
          show_share(profile, layer),         show_time(layer.communicating / divisor),
          show_time(layer.waiting / divisor), show_time(layer.rest() / divisor)};
}

nlohmann::ordered_json show_json(const StepProfile& profile, const LayerProfile& layer) {
  return {{"name", layer.name},
          {"calls", layer.calls},
          {"ms", layer.time * 1e-6},
          {"multiplying_ms", layer.multiplying * 1e-6},
          {"communicating_ms", layer.communicating * 1e-6},
          {"waiting_ms", layer.waiting * 1e-6},
          {"rest_ms", layer.rest() * 1e-6},
          {"weight_bytes", layer.bytes},
          {"of_reading", profile.of_reading(layer)}};
}

}  // namespace

void LayerProfile::add(const LayerProfile& other, double factor) {
  calls += factor * other.calls;
  bytes += factor * other.bytes;
  time += factor * other.time;
  multiplying += factor * other.multiplying;
  communicating += factor * other.communicating;
  waiting += factor * other.waiting;
}

LayerProfile RankProfile::sum() const {
  LayerProfile sum = {.name = "all"};
  for (const LayerProfile& layer : layers) sum.add(layer, 1);
  return sum;
}

double StepProfile::of_reading(const LayerProfile& layer) const {
  return layer.multiplying > 0 ? layer.bytes / layer.multiplying / reading : 0;
}

StepProfile profile_of(const measure::StepSetup& setup, const measure::StepMeasurement& result,
                       const measure::Recorded& recorded) {
  StepProfile profile = {.plan = result.fastest().plan,
                         .steps = measure::steps_of_loop(setup),
                         .reading = result.reading};
  for (const trace::RankRecords& rank : recorded.ranks)
    profile.ranks.push_back(profile_of_rank(setup, rank, recorded.runs.front(), result.ranks));
  return profile;
}

std::string show_text(const StepProfile& profile) {
  const auto joined = [](std::vector<std::string> row, const std::vector<std::string>& parts) {
    row.insert(row.end(), parts.begin(), parts.end());
    return row;
  };
  const std::vector<std::string> parts = {"product", "of reading", "copy, sum", "wait", "rest"};
  Table layers(joined({"layer", "calls", "each"}, parts), /*left=*/1);
  for (const LayerProfile& layer : profile.ranks.front().layers) {
    layers.add(joined({layer.name, fmt::format("{:.0f}", layer.calls)},
                      show_parts(profile, layer, layer.calls)));
  }
  Table ranks(joined({"rank", "calls", "step"}, parts), /*left=*/1);
  for (const RankProfile& rank : profile.ranks) {
    const LayerProfile sum = rank.sum();
    ranks.add(joined({fmt::format("{}", rank.rank), fmt::format("{:.0f}", sum.calls)},
                     show_parts(profile, sum, /*divisor=*/1)));
  }
  return fmt::format(
      "\nA step of the plan \"{}\": the calls of rank 0, and the sums of each rank; means of {}.\n"
      "While all ranks do nothing but read memory, each reads {:.1f} GB/s; products read weights\n"
      "at the shares \"of reading\".\n\n{}\n{}",
      name(profile.plan), base::show_count(static_cast<std::size_t>(profile.steps), "step"),
      profile.reading, layers.text(), ranks.text());
}

nlohmann::ordered_json show_json(const StepProfile& profile) {
  Json ranks = Json::array();
  for (const RankProfile& rank : profile.ranks) {
    Json layers = Json::array();
    for (const LayerProfile& layer : rank.layers) layers.push_back(show_json(profile, layer));
    ranks.push_back({{"rank", rank.rank},
                     {"all", show_json(profile, rank.sum())},
                     {"layers", std::move(layers)}});
  }
  return {{"plan", name(profile.plan)},
          {"steps", profile.steps},
          {"reading_bytes_per_s", profile.reading * 1e9},
          {"ranks", std::move(ranks)}};
}

}  // namespace plait::cli
