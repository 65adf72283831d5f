// Packing a weight into memory that is there, beside a copy of the same bytes by as many threads.
#pragma once

#include "operands.h"

namespace plait::bench {

// "SHAPE/DTYPE/copy/0", "SHAPE/DTYPE/pack_out_in/0" and "SHAPE/DTYPE/pack_in_out/0", each with the
// weight's bytes a second.
void add_packing(Operands& operands, Dtype dtype);

}  // namespace plait::bench
