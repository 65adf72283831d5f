// Whether there is room for what plait bench OPERATOR measures.
#pragma once

#include "cli/bench/op_options.h"

namespace plait::cli {

// Refuses a problem that this host may not have the memory for, now.
void check_memory(Operator op, const OpSize& size, int world);

}  // namespace plait::cli
