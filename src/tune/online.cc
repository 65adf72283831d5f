#include "tune/online.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/text.h"
#include "plait/collectives.h"
#include "tune/halving.h"
#include "tune/tuner.h"

namespace plait::tune {
namespace {

// The number of plans tried besides serial. Each trial slows down the program.
constexpr std::size_t kPlans = 4;

// Turns that count. The turn before them warms up caches and prepares operators.
constexpr std::size_t kTurns = 5;

// The number of plans in the second round.
constexpr std::size_t kFinalists = 2;

// A limit for programs whose problems all differ, which would never finish their trials.
constexpr std::size_t kMostTrials = 1024;

}  // namespace

std::size_t Online::calls(std::size_t plans) {
  return (plans + (plans > 1 ? kFinalists : 0)) * (1 + kTurns);
}

Online::Trial* Online::trial_of(const PlanKey& key) const {
  const std::string text = name(key);
  const auto found = trials_.find(text);
  if (found != trials_.end()) return &found->second;
  if (trials_.size() >= kMostTrials) return nullptr;
  Trial trial = {.plans = shortlist(model_, key, kPlans), .times = {}, .decision = {}};
  if (trial.plans.size() == 1) trial.decision = trial.plans.front();
  return &trials_.emplace(text, std::move(trial)).first->second;
}

std::optional<Plan> Online::find(const PlanKey& key) const {
  const auto found = trials_.find(name(key));
  if (found != trials_.end() && found->second.decision) return found->second.decision;
  return model_.choose(key);
}

std::optional<Plan> Online::next(const PlanKey& key) const {
  // Only some ranks of another communicator would reach the comparison of trials.
  PLAIT_CHECK(key.world == comm_.world(), "automatic_plans: these plans are for ", comm_.world(),
              " ranks, and a call over ", key.world,
              " cannot try them: make automatic plans over the communicator of the call");
  const Trial* trial = trial_of(key);
  if (trial == nullptr) return model_.choose(key);
  if (trial->decision) return trial->decision;
  return trial->plans[trial->times.size() % trial->plans.size()];
}

void Online::took(const PlanKey& key, const Plan& plan, std::int64_t nanoseconds) const {
  Trial* trial = trial_of(key);
  if (trial == nullptr || trial->decision) return;
  // Another source has supplied this plan, so nothing was tried.
  if (plan != trial->plans[trial->times.size() % trial->plans.size()]) return;
  trial->times.push_back(static_cast<float>(nanoseconds));
  if (trial->times.size() == trial->plans.size() * (1 + kTurns)) decide(key, *trial);
}

// By plan: the time of the slowest rank in each turn that counts. Collective: if only some ranks
// reach it, the program calls operators over another communicator.
std::vector<std::vector<double>> Online::everybodys_times(const PlanKey& key,
                                                          const Trial& trial) const try {
  const std::size_t count = trial.times.size();
  std::vector<float> all(count * static_cast<std::size_t>(comm_.world()));
  all_gather({trial.times.data(), count}, {all.data(), all.size()}, comm_,
             std::vector<std::size_t>(static_cast<std::size_t>(comm_.world()), count));
  std::vector<std::vector<double>> times(trial.plans.size());
  for (std::size_t call = trial.plans.size(); call < count; ++call) {
    float most = 0;
    for (std::size_t at = call; at < all.size(); at += count) most = std::max(most, all[at]);
    times[call % trial.plans.size()].push_back(double{most});
  }
  return times;
} catch (const Error& error) {
  if (error.code() != Code::peer_lost && error.code() != Code::timeout) throw;
  throw Error(error.code(),
              base::sentence("automatic_plans: all ranks of the plans' communicator must take "
                             "part in comparing the trials of ",
                             name(key), ": ", error.what()),
              error.culprit());
}

void Online::decide(const PlanKey& key, Trial& trial) const {
  const std::vector<std::vector<double>> times = everybodys_times(key, trial);
  std::size_t best = 0;
  for (std::size_t i = 1; i < times.size(); ++i) {
    if (is_clearly_faster(times[i], times[0]) &&
        compare(times[i], times[0]) < compare(times[best], times[0]))
      best = i;
  }
  trial.times.clear();
  if (best != 0 && !trial.is_second_round) {
    trial.plans = {trial.plans[0], trial.plans[best]};
    trial.is_second_round = true;
    return;
  }
  trial.decision = trial.plans[best];
  if (settled_) {
    settled_(key, {.plan = trial.plans[best],
                   .nanoseconds = std::llround(comparable_time(times[best], times[0])),
                   .serial = std::llround(median(times[0]))});
  }
}

}  // namespace plait::tune
