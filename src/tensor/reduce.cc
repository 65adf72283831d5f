#include "tensor/reduce.h"

#include "base/check.h"
#include "tensor/copy.h"
#include "tensor/kernels.h"

namespace plait::tensor {

void sum_as_tree(void* out, Dtype out_dtype, const void* const* sources, int count, Dtype in_dtype,
                 std::size_t n) {
  PLAIT_CHECK(count >= 1, "sum_as_tree: needs at least one source, not ", count);
  if (n == 0) return;
  kernels().sum(in_dtype, out_dtype)(out, sources, count, n);
}

void streamed_sum_as_tree(const TwoPlaces& places, Dtype dtype, const void* const* sources,
                          int count, std::size_t n) {
  const StreamedSum streamed = kernels().streamed_sum;
  if (dtype == Dtype::f32 && count > 1 && n > 0 && streamed != nullptr) {
    streamed(places.out, places.kept, sources, count, n);
    return;
  }
  sum_as_tree(places.kept, dtype, sources, count, dtype, n);
  stream_copy(places.out, places.kept, n * size_of(dtype));
}

}  // namespace plait::tensor
