// Estimates the memory of plait bench layer and plait bench model before they allocate it.
#pragma once

#include "cli/bench/step_options.h"

namespace plait::cli {

// The bytes of all ranks of a host together. All plans stay prepared while they race.
double memory_needed(const StepOptions& options, int world);

// Refuses a step for which this host may not have enough memory now.
void check_memory(const StepOptions& options, int world);

}  // namespace plait::cli
