// What plait tune has found, for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/cache.h"

namespace plait::cli {

// A table of the problems with their plans.
std::string show_plans(const PlanCache& cache);

nlohmann::ordered_json plans_json(const PlanCache& cache, const std::string& path);

// The figures of a machine, a line for each group of them.
std::string show_profile(const MachineProfile& profile);

}  // namespace plait::cli
