// The plans of plait tune, as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/cache.h"
#include "plan/profile.h"

namespace plait::cli {

// A table of problems and their plans.
std::string show_plans(const plan::PlanCache& cache);

nlohmann::ordered_json plans_json(const plan::PlanCache& cache, const std::string& path);

// The figures of a machine, in tables and sentences.
std::string show_profile(const plan::MachineProfile& profile);

// True if other programs used the cores, so that the figures are worth measuring again.
bool is_disturbed(const plan::MachineProfile& profile);

}  // namespace plait::cli
