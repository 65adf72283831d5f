// Which problems, and which plans, the verbs are asked about that measure or predict operators.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plait/plan.h"

namespace plait::cli {

class Options;

// Of the whole problem: k is split over the ranks where the product comes first and sums travel, n
// where rows are gathered for it.
struct OpSize {
  std::int64_t m, n, k;
};

// What says so, as typed.
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
// `parts`: how many where nobody says it.
void add_options(Options& options, PlanWords& words, const std::string& parts = "2,4,8");

// As many sizes as the longest list; one of length one goes with all.
std::vector<OpSize> read_sizes(const SizeWords& words);

// The serial one first, whether it was asked for or not. `parts`: where nobody says how many.
std::vector<Plan> read_plans(Operator op, const PlanWords& words,
                             const std::string& parts = "2,4,8");

// Of --weight: a dtype, "plain" or a scheme.
void check_weight_kind(const std::string& text);

}  // namespace plait::cli
