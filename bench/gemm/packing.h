// Packs a weight into existing memory, and compares it with a copy of the same bytes on as many
// threads.
#pragma once

#include "operands.h"

namespace plait::bench {

// "SHAPE/DTYPE/copy/0", "SHAPE/DTYPE/pack_out_in/0" and "SHAPE/DTYPE/pack_in_out/0", each with the
// weight's bytes per second.
void add_packing(Operands& operands, Dtype dtype);

}  // namespace plait::bench
