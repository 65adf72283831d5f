// The memory that plait bench layer and plait bench model may take, before they take it.
#pragma once

#include "cli/bench/step_options.h"

namespace plait::cli {

// Bytes, of all ranks of a host together. All plans stay while they race.
double memory_needed(const StepOptions& options, int world);

// Refuses a step that this host may not have the memory for, now.
void check_memory(const StepOptions& options, int world);

}  // namespace plait::cli
