// How many rows of X to work on at once, by the size of the processor's L2 cache.
#pragma once

#include "gemm/kernel.h"

namespace plait::gemm {

// `shape` with as many rows, in multiples of `shape.rows`, as keep to half the cache together with
// their sums. The other half is for what passes by: panels on their way in, results on theirs out.
Blocking fill_l2(const Blocking& shape, Dtype operand);

}  // namespace plait::gemm
