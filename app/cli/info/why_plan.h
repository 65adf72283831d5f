// Explains the plan of an operator: plait info --why "op=matmul-all-reduce m=8 n=8 k=8".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/info/show.h"
#include "plan/cache.h"
#include "plan/cost_model.h"

namespace plait::cli {

// True if the words name an operator that communicates, and so ask for its plan.
bool is_plan_problem(const std::vector<std::string>& words);

// The inputs of the choice, and its result.
struct PlanChoice {
  PlanKey key;
  std::optional<Plan> set = {};  // by the settings
  std::string setting = {};      // the setting, and where it was set
  std::string cache_path = {};
  std::optional<plan::PlanCache::Entry> measured = {};
  std::string refusal = {};     // automatic_plans() throws it, for the cache or the profile
  std::string left_alone = {};  // why it reads neither of them
  plan::MachineProfile profile = {};
  std::vector<plan::Candidate> candidates = {};  // the fastest first
  Plan chosen = {};
};

PlanChoice choose_plan(const std::vector<std::string>& words);

std::string show_text(const PlanChoice& choice);
Json show_json(const PlanChoice& choice);

// Explains a call that has no choice of plans; null if the words name none.
Json explain_one_plan(const std::vector<std::string>& words);
std::string show_one_plan(const Json& explained);

}  // namespace plait::cli
