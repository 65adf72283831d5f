// The sets for x86.
#pragma once

#include "tensor/kernels.h"

namespace plait::tensor {

const Kernels& avx2_kernels();
const Kernels& avx512_kernels();

}  // namespace plait::tensor
