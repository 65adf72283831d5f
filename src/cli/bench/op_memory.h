// Whether there is room for an operator that is measured in several plans at once.
#pragma once

#include <cstddef>

#include "plait/plan.h"

namespace plait::cli {

// Bytes of all ranks, in so many plans that stay prepared while they take turns.
double memory_needed(const PlanKey& key, std::size_t plans);

// Refuses a problem that this host may not have the memory for, now.
void check_memory(const PlanKey& key, std::size_t plans);

}  // namespace plait::cli
