// Shows the thread sanitizer what a kernel reads and writes. Code that is made at run time is none
// of its business, and in the loops of the other kernels it would look at the same bytes again in
// every step: they are compiled without it.
#pragma once

#include "gemm/kernel.h"

namespace plait::gemm {

// To be called before kernel.multiply(call). It does nothing unless a sanitizer watches.
void show_tile(const TileKernel& kernel, const TileCall& call);

}  // namespace plait::gemm
