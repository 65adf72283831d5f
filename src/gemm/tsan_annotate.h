// Tells the thread sanitizer what a kernel reads and writes. Kernels are compiled without it,
// because in their loops it would check the same bytes again in every step.
#pragma once

#include "gemm/kernel.h"
#include "plait/tensor_view.h"

namespace plait::gemm {

// To be called before kernel.multiply(call). It does nothing in builds without the sanitizer.
void tsan_annotate(const TileKernel& kernel, const TileCall& call);

// Likewise, before a kernel reads a plain weight.
void tsan_annotate(const ConstTensorView& read);

}  // namespace plait::gemm
