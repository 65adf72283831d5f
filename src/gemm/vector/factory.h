// The kernel that the compiler writes: f32 on any processor, by its widest vectors, and bf16 where
// these have an instruction for it.
#pragma once

#include <memory>

#include "gemm/kernel.h"

namespace plait::gemm::vector {

// Why this process can't have it, in words; nullptr: it can.
const char* refusal(Dtype operand);

std::unique_ptr<TileKernel> create(Dtype operand);

}  // namespace plait::gemm::vector
