// The problems and plans of verbs that measure or predict operators.
#pragma once

#include <string>
#include <vector>

#include "measure/op_setup.h"
#include "plait/plan.h"

namespace plait::cli {

class Options;

// The sizes as typed.
struct SizeWords {
  std::string m = {};
  std::string n = {};
  std::string k = {};
  std::string shapes = {};
};
struct PlanWords {
  std::string schedule = {};
  std::string parts = {};
  std::string plans = {};
};

void add_options(Options& options, SizeWords& words);
// `parts`: the default of --parts.
void add_options(Options& options, PlanWords& words, const std::string& parts = "2,4,8");

// Returns as many sizes as the longest list has. A list with one size applies to all.
std::vector<measure::OpSize> read_sizes(const SizeWords& words);

// The serial plan comes first, even if it was not requested. `parts`: the default of --parts.
std::vector<Plan> read_plans(Operator op, const PlanWords& words,
                             const std::string& parts = "2,4,8");

// Checks --weight: a dtype, "plain" or a scheme.
void check_weight_kind(const std::string& text);

}  // namespace plait::cli
