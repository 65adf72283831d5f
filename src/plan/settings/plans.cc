// Answers requests for plans from the settings.
#include <utility>

#include "base/round_up.h"
#include "plait/settings.h"
#include "plan/families.h"

namespace plait {

// On 8 ranks:
// all_gather_matmul of 16384 x 5120 by 15360 columns    → [16384, 5120, 1920]
// matmul_reduce_scatter with k = 15360                  → [16384, 1920, 5120]
// matmul_all_to_all of 4096 x 512 by 1280 columns       → [512, 512, 1280]
// matmul_all_gather_columns with 32000 columns in all   → [4096, 512, 4000]
// experts of 2048 by 768, 8 of a row, for any rows      → [8, 2048, 768]
ProductShape shape_of(const PlanKey& key) {
  // Shares are balanced, and the first is the largest: 10 among 4 → 3 3 2 2.
  const auto share_if = [&](bool is_shared, std::int64_t size) {
    return is_shared ? base::ceil_div(size, key.world) : size;
  };
  const OperatorTraits& traits = traits_of(key.op);
  const bool is_operator = key.family == Family::operators;
  return {.m = share_if(key.family == Family::ulysses, key.m),
          .k = share_if(is_operator && traits.shares_k, key.k),
          .n = share_if(key.family == Family::columns || (is_operator && traits.shares_n), key.n)};
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
