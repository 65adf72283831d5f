// Answers requests for plans from the settings.
#include <utility>

#include "base/round_up.h"
#include "plait/settings.h"
#include "plan/families.h"

namespace plait {

// world 8, all_gather_matmul of 16384 x 5120 by 15360 columns → [16384, 5120, 1920]
// world 8, matmul_reduce_scatter with k = 15360              → [16384, 1920, 5120]
ProductShape shape_of(const PlanKey& key) {
  // Shares are balanced, and the first is the largest: 10 among 4 → 3 3 2 2.
  const auto first_share = [&](std::int64_t size) { return base::ceil_div(size, key.world); };
  const OperatorTraits& traits = traits_of(key.op);
  return {.m = key.m,
          .k = traits.shares_k ? first_share(key.k) : key.k,
          .n = traits.shares_n ? first_share(key.n) : key.n};
}

SettingsPlans::SettingsPlans(const Settings& settings, std::vector<const PlanSource*> further)
    : plan_(settings.plan), customized_(settings.customized), further_(std::move(further)) {}

SettingsPlans::~SettingsPlans() = default;

std::optional<Plan> SettingsPlans::set_for(const PlanKey& key) const {
  if (const auto found = customized_.find(shape_of(key)); found != customized_.end())
    return plan::followed_by(key, found->second);
  if (plan_) return plan::followed_by(key, *plan_);
  return std::nullopt;
}

std::optional<Plan> SettingsPlans::find(const PlanKey& key) const {
  if (auto set = set_for(key)) return set;
  for (const PlanSource* source : further_) {
    if (auto found = source->find(key)) return found;
  }
  return std::nullopt;
}

std::optional<Plan> SettingsPlans::next(const PlanKey& key) const {
  if (auto set = set_for(key)) return set;
  for (const PlanSource* source : further_) {
    if (auto found = source->next(key)) return found;
  }
  return std::nullopt;
}

// Reports the time to the source that supplied the plan. It is the source that answers first now,
// because asking does not change the sources.
void SettingsPlans::took(const PlanKey& key, const Plan& plan, std::int64_t nanoseconds) const {
  if (set_for(key)) return;
  for (const PlanSource* source : further_) {
    if (source->next(key)) return source->took(key, plan, nanoseconds);
  }
}

// The times of a further source apply to a plan that is set, too.
std::optional<PlanReason> SettingsPlans::reason(const PlanKey& key) const {
  std::optional<PlanReason> found;
  for (const PlanSource* source : further_) {
    found = source->reason(key);
    if (found) break;
  }
  if (!set_for(key)) return found;
  if (!found) found.emplace();
  found->sentence = "as options or settings say";
  return found;
}

}  // namespace plait
