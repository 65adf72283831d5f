// The backends: who can multiply, best first.
#pragma once

#include <memory>
#include <span>

#include "gemm/kernel.h"
#include "plait/gemm.h"

namespace plait::gemm {

struct Backend {
  const char* name;
  // Why it can't make a kernel of this operand here, in words; nullptr: it can.
  const char* (*refusal)(Dtype operand);
  std::unique_ptr<TileKernel> (*create)(Dtype operand);
};

// Every backend of tiles. The reference, which is none, can do everything and comes after them.
std::span<const Backend> backends();

inline constexpr const char* kReference = "reference";

// bf16 multiplies bf16 as it is, everything else is widened to f32.
Dtype operand_of(const GemmDesc& desc);

}  // namespace plait::gemm
