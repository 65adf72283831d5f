// Sums of the ranks' parts, in the order that the numerics contract fixes: a tree over the ranks,
// above the tree of each rank's own sum.
//
//   const void* parts[] = {rank0, rank1, rank2};
//   sum_as_tree(out, Dtype::bf16, parts, 3, Dtype::f32, n);
#pragma once

#include <cstddef>

#include "plait/dtype.h"

namespace plait::tensor {

// out[i] = round(((sources[0][i] + sources[1][i]) + (sources[2][i] + sources[3][i])) + ...).
// Neighbours are added in pairs, level by level, in f32; one that is left over goes up a level
// unchanged; the result is rounded once. The bits depend on the sources' values only, not on n,
// alignment or the processor. If a sum of two or more is a NaN, it is always the same NaN. The
// additions obey the thread's rounding mode and denormal flags, which the caller sets: see
// base::DefaultFloats.
//
// Needs at least one source. `out` may be one of the sources if its elements are no wider than
// theirs; otherwise it must not overlap them. No alignment is needed.
void sum_as_tree(void* out, Dtype out_dtype, const void* const* sources, int count, Dtype in_dtype,
                 std::size_t n);

// A sum of elements of one dtype with two results: `kept`, which may be one of the sources, and
// `out`, which must not be one and is written past the caches: see stream_copy().
struct TwoPlaces {
  void* out;
  void* kept;
};
void streamed_sum_as_tree(const TwoPlaces& places, Dtype dtype, const void* const* sources,
                          int count, std::size_t n);

}  // namespace plait::tensor
