#include "tune/online.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "plait/collectives.h"
#include "tune/halving.h"

namespace plait::tune {
namespace {

// Turns that count. The turn before them warms up caches and prepares operators.
constexpr int kTurns = 5;

// The number of plans in the second round, at most.
constexpr std::size_t kFinalists = 3;

// A plan that takes so many times as long as serial in so many turns that count, and in their
// median, is tried no longer. Another program may have disturbed one of them.
constexpr double kTooSlow = 1.3;
constexpr int kMostSlow = 2;

// A limit for programs whose problems all differ, which would never finish their trials.
constexpr std::size_t kMostTrials = 1024;

// After a decision, ranks compare their times after so many calls, and after twice as many each
// time that they agree with the decision's. Two comparisons in a row that are so far off start a
// new trial.
constexpr std::size_t kFirstWatch = 64;
constexpr std::size_t kLastWatch = 4096;
constexpr double kDeviation = 0.2;
constexpr int kDeviations = 2;

constexpr std::int64_t kFewRows = 16;

const Plan kSerial = {.schedule = Schedule::serial};

// How far apart the times of a plan lie, as a share of their median: half of them are within this
// distance of one another.
double spread_of(const std::vector<double>& times) {
  std::vector<double> sorted = times;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t quarter = sorted.size() / 4;
  return (sorted[sorted.size() - 1 - quarter] - sorted[quarter]) / std::max(median(times), 1.0);
}

float median_of(const std::vector<float>& times) {
  return static_cast<float>(median({times.begin(), times.end()}));
}

}  // namespace

std::vector<Plan> plans_to_try(const plan::CostModel& model, const PlanKey& key) {
  std::vector<Plan> plans = {kSerial};
  const auto add = [&](const Plan& plan) {
    if (std::find(plans.begin(), plans.end(), plan) == plans.end()) plans.push_back(plan);
  };
  if (key.world == 1 || !traits_of(key.op).communicates()) return plans;
  if (has_schedule(key.op, Schedule::fused)) add(default_plan(key.op));
  const std::vector<plan::Candidate> ranked = model.rank(key);
  const auto fastest = [&](auto&& suits) {
    const auto found = std::find_if(ranked.begin(), ranked.end(), [&](const plan::Candidate& one) {
      return one.plan != kSerial && suits(one.plan);
    });
    if (found != ranked.end()) add(found->plan);
  };
  fastest([](const Plan&) { return true; });
  fastest([](const Plan& plan) { return plan.schedule == Schedule::pipelined; });
  return plans;
}

PlanKey shared_problem(PlanKey key) {
  if (key.m <= kFewRows) return key;
  const std::int64_t step =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(key.m - 1))) / 4;
  key.m = (key.m + step - 1) / step * step;
  return key;
}

std::size_t Online::calls(std::size_t plans) {
  return plans * (1 + kTurns) + (plans > 1 ? kFinalists * kTurns : 0);
}

Online::Trial* Online::trial_of(const PlanKey& key) const {
  const PlanKey shared = shared_problem(key);
  const auto found = trials_.find(shared);
  if (found != trials_.end()) return &found->second;
  if (trials_.size() >= kMostTrials) return nullptr;
  Trial trial = {.plans = plans_to_try(model_, shared)};
  trial.times.resize(trial.plans.size());
  if (trial.plans.size() == 1) trial.decision = {.plan = trial.plans.front()};
  return &trials_.emplace(shared, std::move(trial)).first->second;
}

void Online::know(const PlanKey& key, const plan::PlanCache::Entry& entry) const {
  Trial* trial = trial_of(key);
  if (trial != nullptr && !trial->decision && !trial->is_repeated) trial->decision = entry;
}

std::optional<plan::PlanCache::Entry> Online::decision(const PlanKey& key) const {
  const auto found = trials_.find(shared_problem(key));
  return found == trials_.end() ? std::nullopt : found->second.decision;
}

// Begins no trial: any rank may ask, and ranks begin their trials together.
bool Online::tries(const PlanKey& key) const {
  return trials_.size() < kMostTrials || trials_.contains(shared_problem(key));
}

std::optional<Plan> Online::find(const PlanKey& key) const {
  const auto decided = decision(key);
  return decided ? decided->plan : model_.choose(key);
}

std::optional<Plan> Online::next(const PlanKey& key) const {
  // Only some ranks of another communicator would reach the comparison of trials.
  PLAIT_CHECK(key.world == comm_.world(), "automatic_plans: these plans are for ", comm_.world(),
              " ranks, and a call over ", key.world,
              " cannot try them: make automatic plans over the communicator of the call");
  const Trial* trial = trial_of(key);
  if (trial == nullptr) return model_.choose(key);
  if (trial->decision) return trial->decision->plan;
  return trial->plans[trial->turn.size()];
}

// The time that the call would have taken with the rows of the shared problem.
double Online::as_shared(const PlanKey& key, std::int64_t nanoseconds) const {
  const auto taken = static_cast<double>(nanoseconds);
  const PlanKey shared = shared_problem(key);
  if (key.m == shared.m || key.m == 0) return taken;
  return taken * model_.predict(shared, kSerial).total / model_.predict(key, kSerial).total;
}

void Online::took(const PlanKey& key, const Plan& plan, std::int64_t nanoseconds) const {
  Trial* trial = trial_of(key);
  if (trial == nullptr) return;
  const auto taken = static_cast<float>(as_shared(key, nanoseconds));
  if (trial->decision) {
    if (plan == trial->decision->plan) watch(key, *trial, taken);
    return;
  }
  // Another source has supplied this plan, so nothing was tried.
  if (plan != trial->plans[trial->turn.size()]) return;
  trial->turn.push_back(taken);
  if (trial->turn.size() == trial->plans.size()) end_turn(key, *trial);
}

// The times of the slowest rank. Collective: if only some ranks reach it, the program calls
// operators over another communicator.
std::vector<double> Online::slowest_of(const PlanKey& key, const std::vector<float>& mine) const
    try {
  const std::size_t count = mine.size();
  std::vector<float> all(count * static_cast<std::size_t>(comm_.world()));
  all_gather({mine.data(), count}, {all.data(), all.size()}, comm_,
             std::vector<std::size_t>(static_cast<std::size_t>(comm_.world()), count));
  std::vector<double> slowest(count);
  for (std::size_t i = 0; i < all.size(); ++i)
    slowest[i % count] = std::max(slowest[i % count], double{all[i]});
  return slowest;
} catch (const Error& error) {
  if (error.code() != Code::peer_lost && error.code() != Code::timeout) throw;
  throw Error(error.code(),
              base::sentence("automatic_plans: all ranks of the plans' communicator must take "
                             "part in comparing the trials of ",
                             name(key), ": ", error.what()),
              error.culprit());
}

void Online::drop_slow_plans(Trial& trial, const std::vector<double>& slowest) {
  for (std::size_t i = trial.plans.size(); i-- > 1;) {
    if (slowest[i] > kTooSlow * slowest.front()) ++trial.slow[i];
    if (trial.slow[i] < kMostSlow || compare(trial.times[i], trial.times[0]) <= kTooSlow) continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    trial.plans.erase(trial.plans.begin() + at);
    trial.times.erase(trial.times.begin() + at);
    trial.slow.erase(trial.slow.begin() + at);
  }
}

void Online::end_turn(const PlanKey& key, Trial& trial) const {
  // Taken out first: the comparison may fail, and the caller may call again.
  const std::vector<double> slowest = slowest_of(key, std::exchange(trial.turn, {}));
  trial.slow.resize(trial.plans.size());
  if (trial.turns > 0 || trial.is_second_round) {
    for (std::size_t i = 0; i < trial.plans.size(); ++i) trial.times[i].push_back(slowest[i]);
    drop_slow_plans(trial, slowest);
  }
  ++trial.turns;
  if (trial.turns == kTurns + (trial.is_second_round ? 0 : 1)) end_round(key, trial);
}

// The plan that is clearly the fastest. Where other programs disturb the times so much that none is
// clearly faster or slower than serial, it is the model's choice.
std::size_t Online::best_of(const PlanKey& key, const Trial& trial) const {
  const auto& times = trial.times;
  std::size_t best = 0;
  for (std::size_t i = 1; i < times.size(); ++i) {
    if (is_clearly_faster(times[i], times[0]) &&
        compare(times[i], times[0]) < compare(times[best], times[0]))
      best = i;
  }
  if (best != 0) return best;
  const std::size_t chosen = choice_of_model(key, trial);
  const double most = spread_of(times[0]) + spread_of(times[chosen]);
  return std::abs(compare(times[chosen], times[0]) - 1) < most / 2 ? chosen : 0;
}

// The place of the model's choice among the plans; that of serial, if it was dropped.
std::size_t Online::choice_of_model(const PlanKey& key, const Trial& trial) const {
  const auto chosen =
      std::find(trial.plans.begin(), trial.plans.end(), model_.choose(shared_problem(key)));
  return chosen == trial.plans.end() ? 0 : static_cast<std::size_t>(chosen - trial.plans.begin());
}

void Online::end_round(const PlanKey& key, Trial& trial) const {
  const auto& times = trial.times;
  const std::size_t best = best_of(key, trial);
  if (best != 0 && !trial.is_second_round) {
    const std::size_t chosen = choice_of_model(key, trial);
    std::vector<Plan> finalists = {trial.plans[0], trial.plans[best]};
    if (chosen != 0 && chosen != best) finalists.push_back(trial.plans[chosen]);
    trial.plans = std::move(finalists);
    trial.times.assign(trial.plans.size(), {});
    trial.slow.assign(trial.plans.size(), 0);
    trial.turns = 0;
    trial.is_second_round = true;
    return;
  }
  trial.decision = {.plan = trial.plans[best],
                    .nanoseconds = std::llround(comparable_time(times[best], times[0])),
                    .serial = std::llround(median(times[0]))};
  const bool is_clear = is_clearly_best(trial, best);
  trial.times.clear();
  trial.calls_left = is_clear ? 0 : trial.retry_after;
  if (is_clear && listener_.settled) listener_.settled(shared_problem(key), *trial.decision);
}

// Serial is compared with every plan; another plan was the best of those that beat serial. Each
// time of the faster one has to be shorter than all of the other's: by chance, five times of equal
// plans come so once in 250 trials.
bool Online::is_clearly_best(const Trial& trial, std::size_t best) {
  const auto is_apart = [](const std::vector<double>& fast, const std::vector<double>& slow) {
    return *std::max_element(fast.begin(), fast.end()) <
           *std::min_element(slow.begin(), slow.end());
  };
  const auto& serial = trial.times.front();
  if (best != 0) return is_apart(trial.times[best], serial);
  return std::all_of(trial.times.begin() + 1, trial.times.end(),
                     [&](const auto& times) { return is_apart(serial, times); });
}

// A network may become slower or faster while a program runs, and a plan of another run may come
// from another network.
void Online::watch(const PlanKey& key, Trial& trial, float nanoseconds) const {
  if (!trial.decision || trial.decision->nanoseconds <= 0) return;
  if (trial.calls_left > 0) {
    --trial.calls_left;
    if (trial.calls_left == 0) {
      trial.retry_after *= 2;
      return try_again(key, trial, trial.compare_after);
    }
  }
  if (trial.compare_after == 0) trial.compare_after = kFirstWatch;
  trial.latest.push_back(nanoseconds);
  if (trial.latest.size() < trial.compare_after) return;
  const double median = slowest_of(key, {median_of(trial.latest)}).front();
  trial.latest.clear();
  const auto expected = static_cast<double>(trial.decision->nanoseconds);
  if (std::abs(median / expected - 1) <= kDeviation) {
    trial.deviations = 0;
    trial.compare_after = std::min(2 * trial.compare_after, kLastWatch);
    return;
  }
  if (++trial.deviations < kDeviations) return;
  // A program whose calls scatter by nature, since its ranks come late, must not try for ever.
  const std::size_t next_watch = std::min(4 * trial.compare_after, kLastWatch);
  if (listener_.deviated) listener_.deviated();
  try_again(key, trial, next_watch);
}

void Online::try_again(const PlanKey& key, Trial& trial, std::size_t compare_after) const {
  trial = {.plans = plans_to_try(model_, shared_problem(key)),
           .is_repeated = true,
           .compare_after = compare_after,
           .retry_after = trial.retry_after};
  trial.times.resize(trial.plans.size());
}

}  // namespace plait::tune
