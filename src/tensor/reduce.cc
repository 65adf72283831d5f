#include "tensor/reduce.h"

#include "base/check.h"
#include "tensor/kernels.h"

namespace plait::tensor {

void sum_in_order(void* out, Dtype out_dtype, const void* const* sources, int count, Dtype in_dtype,
                  std::size_t n) {
  PLAIT_CHECK(count >= 1, "sum_in_order: needs at least one source, not ", count);
  if (n == 0) return;
  kernels().sum(in_dtype, out_dtype)(out, sources, count, n);
}

}  // namespace plait::tensor
