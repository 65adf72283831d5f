// How many rows of X to work on at once, by the size of the processor's L2 cache.
#pragma once

#include "gemm/kernel.h"

namespace plait::gemm {

// `shape` with as many rows, in multiples of `shape.rows`, as keep to half the cache together with
// their sums. The other half is for what passes by: panels on their way in, results on theirs out.
//
// Every block of rows reads the whole weight from beyond the cache. If the cache is too small for
// twice shape.rows, but large enough for them with half as many k, then k is halved: half as much
// of the weight is read. With f32 this is so with a cache of 512 KiB. Rows of X that share a few
// sets of such a cache don't stay in it until the next panel, so they are to be spread.
Blocking fill_l2(const Blocking& shape, Dtype operand, long cache_bytes);

// For the cache of this processor.
Blocking fill_l2(const Blocking& shape, Dtype operand);

}  // namespace plait::gemm
