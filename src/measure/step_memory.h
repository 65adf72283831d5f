// Estimates the memory of plait bench layer and plait bench model before they allocate it.
#pragma once

#include "measure/step_setup.h"

namespace plait::measure {

// The bytes of all ranks of a host together. All plans stay prepared while they race.
double memory_needed(const StepSetup& setup, int world);

// Refuses a step for which this host may not have enough memory now.
void check_memory(const StepSetup& setup, int world);

}  // namespace plait::measure
