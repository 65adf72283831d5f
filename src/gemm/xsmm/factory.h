// Kernels that libxsmm writes for this processor when they are created.
#pragma once

#include <memory>

#include "gemm/kernel.h"

namespace plait::gemm::xsmm {

// Why this process can't have them, in words; nullptr: it can.
const char* refusal(Dtype operand);

std::unique_ptr<TileKernel> create(Dtype operand);

}  // namespace plait::gemm::xsmm
