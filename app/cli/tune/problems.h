// Problems of plait tune that are given by a model or a timeline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plait/plan.h"
#include "plan/models.h"

namespace plait::cli {

// The operators of a block's linear layers, forward and backward, without duplicates. `usual` has
// everything but the operator, n and k. With sequence parallelism, rows are gathered and scattered
// between layers; without it, sums are all-reduced.
std::vector<PlanKey> problems_of(const plan::BlockWidths& widths, bool sequence_parallel,
                                 const PlanKey& usual);

// The operators that a timeline of plait contains, without duplicates. Ranks and link are those of
// `usual` unless the timeline has others.
std::vector<PlanKey> problems_in_trace(const std::string& path, const PlanKey& usual);

// Adds the problem unless it is in the list.
void add_problem(std::vector<PlanKey>& problems, const PlanKey& problem);

}  // namespace plait::cli
