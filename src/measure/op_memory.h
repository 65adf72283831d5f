// Estimates whether an operator that is measured with several plans at once fits into memory.
#pragma once

#include <cstddef>

#include "plait/plan.h"

namespace plait::measure {

// The bytes of all ranks, with so many plans that stay prepared while they take turns.
double memory_needed(const PlanKey& key, std::size_t plans);

// Refuses a problem for which this host may not have enough memory now.
void check_memory(const PlanKey& key, std::size_t plans);

}  // namespace plait::measure
