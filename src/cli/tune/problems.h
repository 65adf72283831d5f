// Problems that plait tune is asked about by other names than their sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plait/plan.h"
#include "plan/models.h"

namespace plait::cli {

// The operators of a block's linear layers, forward and backward, each once. `usual` says all but
// the operator, n and k. With sequence parallelism rows are gathered and scattered between layers;
// without it, sums are all-reduced.
std::vector<PlanKey> problems_of(const BlockWidths& widths, bool sequence_parallel,
                                 const PlanKey& usual);

// The operators that a timeline of plait's has calls of, each once. Ranks and link are those of
// `usual` unless the timeline says so.
std::vector<PlanKey> problems_in_trace(const std::string& path, const PlanKey& usual);

// Adds it where it isn't there.
void add_problem(std::vector<PlanKey>& problems, const PlanKey& problem);

}  // namespace plait::cli
