// The calls that have plans and are no Operator: one table of them for keys, tuning and reports.
#pragma once

#include <span>
#include <string_view>

#include "plait/plan.h"

namespace plait::plan {

struct FamilyCall {
  std::string_view name;
  Family family;
  Operator like;  // the operator with the same schedules, which stands for the call in keys
};

std::span<const FamilyCall> family_calls();

// nullptr: it is an operator, or unknown. Reads hyphens for underscores.
const FamilyCall* find_family_call(std::string_view spelling);
const FamilyCall* find_family_call(Family family, bool product_first);

// The name of the call that the key is of.
std::string_view call_name(const PlanKey& key);

// True if the call exists in the schedule.
bool has_schedule(const PlanKey& key, Schedule schedule);

// The plan itself if the call can follow it, else the nearest that it can.
Plan followed_by(const PlanKey& key, Plan plan);

}  // namespace plait::plan
