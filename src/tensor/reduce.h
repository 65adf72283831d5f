// The sum of the ranks' parts, in the order that the numerics contract fixes: as a tree, whose
// levels above a rank's own sum these are.
//
//   const void* parts[] = {rank0, rank1, rank2};
//   sum_in_order(out, Dtype::bf16, parts, 3, Dtype::f32, n);
#pragma once

#include <cstddef>

#include "plait/dtype.h"

namespace plait::tensor {

// out[i] = round(((sources[0][i] + sources[1][i]) + (sources[2][i] + sources[3][i])) + ...):
// neighbours are added in pairs, level by level, in f32; one that is left over goes up as it is;
// rounded once. The bits depend on the sources' values alone, not on n, on alignment or on the
// processor; a sum of two or more that is not a number is always the same NaN. The additions obey
// the thread's rounding mode and denormal flags: a caller sets them, see base::DefaultFloats.
//
// Takes one source or more. `out` may be one of the sources where its elements are no wider than
// theirs; otherwise it must not overlap them. No alignment is needed.
void sum_in_order(void* out, Dtype out_dtype, const void* const* sources, int count, Dtype in_dtype,
                  std::size_t n);

// The same sum, of elements of one dtype, to two places: `kept`, which may be one of the sources,
// and `out`, which is none of them and is written past the caches: see stream_copy().
struct TwoPlaces {
  void* out;
  void* kept;
};
void streamed_sum_in_order(const TwoPlaces& places, Dtype dtype, const void* const* sources,
                           int count, std::size_t n);

}  // namespace plait::tensor
