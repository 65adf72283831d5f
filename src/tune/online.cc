#include "tune/online.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "plait/collectives.h"
#include "tune/halving.h"
#include "tune/tuner.h"

namespace plait::tune {
namespace {

// Beside serial. Each of them costs somebody's time.
constexpr std::size_t kPlans = 4;

// Turns that count; the one before them finds cold caches and prepares what is run.
constexpr std::size_t kTurns = 5;

// Of the runoff.
constexpr std::size_t kFinalists = 2;

// Somebody whose problems are all different would never come to an end.
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
  // Of other ranks only some would come to where trials are compared.
  PLAIT_CHECK(key.world == comm_.world(), "automatic_plans: the plans of ", comm_.world(),
              " ranks can't be tried by ", key.world,
              ": ask for some over the communicator of the call");
  const Trial* trial = trial_of(key);
  if (trial == nullptr) return model_.choose(key);
  if (trial->decision) return trial->decision;
  return trial->plans[trial->times.size() % trial->plans.size()];
}

void Online::took(const PlanKey& key, const Plan& plan, std::int64_t nanoseconds) const {
  Trial* trial = trial_of(key);
  if (trial == nullptr || trial->decision) return;
  // Somebody else's word came before this one's: nothing was tried.
  if (plan != trial->plans[trial->times.size() % trial->plans.size()]) return;
  trial->times.push_back(static_cast<float>(nanoseconds));
  if (trial->times.size() == trial->plans.size() * (1 + kTurns)) decide(key, *trial);
}

// By plan, what the slowest rank took in each turn that counts. Collective: where only some of the
// ranks have come here, it is because they call over another communicator.
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
              base::sentence("automatic_plans: where the trials of ", name(key),
                             " are compared, by all ranks of the communicator that the plans are "
                             "of: ",
                             error.what()),
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
  if (best != 0 && !trial.is_runoff) {
    trial.plans = {trial.plans[0], trial.plans[best]};
    trial.is_runoff = true;
    return;
  }
  trial.decision = trial.plans[best];
  if (settled_) {
    settled_(key, {.plan = trial.plans[best],
                   .nanoseconds = static_cast<std::int64_t>(median(times[best])),
                   .serial = static_cast<std::int64_t>(median(times[0]))});
  }
}

}  // namespace plait::tune
