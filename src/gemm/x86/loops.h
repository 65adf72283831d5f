// The sets of loops for x86.
#pragma once

#include "gemm/loops.h"

namespace plait::gemm {

const Loops& avx512_loops();
const Loops& avx2_loops();

}  // namespace plait::gemm
