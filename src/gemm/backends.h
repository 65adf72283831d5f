// The backends that can multiply, best first.
#pragma once

#include <memory>
#include <span>

#include "gemm/kernel.h"
#include "plait/gemm.h"

namespace plait::gemm {

struct Backend {
  const char* name;
  Dtype operand;
  // Why it can't make a kernel of this operand here, in words; nullptr: it can.
  const char* (*refusal)(Dtype operand);
  std::unique_ptr<TileKernel> (*create)(Dtype operand);
};

// Every backend of tiles. The reference, which is none, can do everything and comes after them.
std::span<const Backend> backends();

inline constexpr const char* kReference = "reference";

// Why this backend can't do the product here, in words; nullptr: it can. Kernels of f32 do any, on
// elements that are widened; those of bf16 do what is bf16 already.
const char* refusal(const Backend& backend, const GemmDesc& desc);

// The narrowest that holds the elements of both as they are.
Dtype operand_of(const GemmDesc& desc);

}  // namespace plait::gemm
