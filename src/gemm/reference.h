// The product as one would write it: what the backends are compared with.
#pragma once

#include "gemm/product.h"

namespace plait::gemm {

// One f32 sum for each element, k in sequence.
void run_reference(const Task& task);

}  // namespace plait::gemm
