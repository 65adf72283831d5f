// Kernels on the tile registers of Intel's AMX: 16 x 16 sums, 32 products of bf16 each, at a time.
#pragma once

#include <memory>

#include "gemm/kernel.h"

namespace plait::gemm::amx {

// Why this process can't have them, in words; nullptr: it can.
const char* refusal(Dtype operand);

std::unique_ptr<TileKernel> create(Dtype operand);

}  // namespace plait::gemm::amx
