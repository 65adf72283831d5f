#include "plan/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/text.h"
#include "plan/schedule_model.h"
#include "plan/sizes.h"

namespace plait::plan {
namespace {

// Plans whose times differ by less, as a share, count as equally fast; the more usual one wins.
constexpr double kSame = 0.005;

void add(std::vector<Plan>& plans, const Plan& plan) {
  if (std::find(plans.begin(), plans.end(), plan) == plans.end()) plans.push_back(plan);
}

void add_fused(std::vector<Plan>& plans, const PlanKey& key) {
  add(plans, {.schedule = Schedule::fused});
  if (is_compute_first(key.op)) {
    for (const std::int64_t chunks : {8, 16, 32, 64}) {
      const std::int64_t columns = key.n / chunks / kPanel * kPanel;
      if (columns >= kPanel) add(plans, {.schedule = Schedule::fused, .chunk = columns});
    }
    return;
  }
  for (const std::int64_t chunks : {4, 8, 16}) {
    const std::int64_t rows = key.m / key.world / chunks;
    if (rows >= 8) add(plans, {.schedule = Schedule::fused, .chunk = rows});
  }
}

void add_pipelined(std::vector<Plan>& plans, const PlanKey& key) {
  struct Ends {
    int first;
    int last;
  };
  constexpr std::array<Ends, 4> kEnds = {{{50, 50}, {100, 25}, {25, 100}, {25, 25}}};
  const Axis other = is_compute_first(key.op) ? Axis::rows : Axis::natural;
  for (const int parts : {4, 8, 2, 16, 3, 6, 12, 24, 32, 64}) {
    for (const Ends& ends : kEnds) {
      for (const Axis axis : {Axis::natural, other}) {
        add(plans, {.schedule = Schedule::pipelined,
                    .parts = parts,
                    .axis = axis,
                    .first = ends.first,
                    .last = ends.last});
      }
    }
  }
}

}  // namespace

std::vector<Plan> candidates(const PlanKey& key) {
  std::vector<Plan> plans = {{.schedule = Schedule::serial}};
  if (key.world == 1) return plans;
  if (has_schedule(key.op, Schedule::fused)) add_fused(plans, key);
  if (has_schedule(key.op, Schedule::pipelined)) add_pipelined(plans, key);
  return plans;
}

Prediction CostModel::predict(const PlanKey& key, const Plan& plan) const {
  return ScheduleModel(profile_, key, plan).run();
}

std::vector<Candidate> CostModel::rank(const PlanKey& key) const {
  std::vector<Candidate> all;
  for (const Plan& plan : candidates(key))
    all.push_back({.plan = plan, .prediction = predict(key, plan)});
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.prediction.total < b.prediction.total;
  });
  return all;
}

double CostModel::doubt(const PlanKey& key, const Prediction& one, const Prediction& serial) const {
  const auto besides = [](const Prediction& some) { return some.work + some.waited; };
  const double differing = besides(one) + besides(serial) + std::abs(one.product - serial.product);
  return std::max(kLeastGain * serial.total, profile_.uncertainty_of(key) * differing);
}

Plan CostModel::choose(const PlanKey& key) const {
  // It knows nothing of exchanges. An unknown network is more likely slow than so fast that nothing
  // is gained.
  if (key.family != Family::operators || !profile_.knows_link(key)) return default_plan(key.op);
  const std::vector<Plan> plans = candidates(key);
  const Prediction serial = predict(key, plans.front());
  std::vector<Candidate> faster;
  double least = serial.total;
  for (const Plan& plan : plans) {
    const Prediction one = predict(key, plan);
    if (serial.total - one.total <= doubt(key, one, serial)) continue;
    faster.push_back({.plan = plan, .prediction = one});
    least = std::min(least, one.total);
  }
  const auto chosen = std::find_if(faster.begin(), faster.end(), [&](const Candidate& one) {
    return one.prediction.total <= least * (1 + kSame);
  });
  return chosen == faster.end() ? plans.front() : chosen->plan;
}

// Why the choice is what it is, with the figures that decided.
std::string CostModel::why(const PlanKey& key, const Prediction& serial) const {
  if (!profile_.knows_link(key)) return "the link between the hosts has not been measured";
  const Plan chosen = choose(key);
  const bool is_serial = chosen.schedule == Schedule::serial;
  const auto ranked = rank(key);
  const auto best = std::find_if(ranked.begin(), ranked.end(), [&](const Candidate& one) {
    return is_serial ? one.plan.schedule != Schedule::serial : one.plan == chosen;
  });
  if (best == ranked.end()) return "there is no other plan";
  const double gain = 1 - best->prediction.total / serial.total;
  const std::string share = base::show_percent(std::abs(gain));
  const std::string error = base::show_percent(doubt(key, best->prediction, serial) / serial.total);
  if (!is_serial) return base::sentence("predicted to gain ", share, ", with an error of ", error);
  return base::sentence("no gain is expected: \"", name(best->plan), "\" is predicted to ",
                        gain < 0 ? "lose " : "gain ", share, ", with an error of ", error);
}

std::optional<PlanReason> CostModel::reason(const PlanKey& key) const {
  if (key.family != Family::operators) return std::nullopt;
  if (key.world == 1) return PlanReason{.sentence = "one rank has nothing to hide"};
  const Prediction serial = predict(key, {.schedule = Schedule::serial});
  return PlanReason{
      .sentence = why(key, serial), .serial_ns = serial.total, .transfer_ns = serial.transfer};
}

}  // namespace plait::plan
