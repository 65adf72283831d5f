#include "gemm/backends.h"

#include <array>

#include "gemm/amx/factory.h"
#include "gemm/vector/factory.h"

namespace plait::gemm {

// A new kind of kernel is a line here, and a folder. A set of vector instructions is a file of one
// that is there (vector/sets.h).
std::span<const Backend> backends() {
  static constexpr std::array kBackends = {
      Backend{"amx", Dtype::bf16, amx::refusal, amx::create},
      Backend{"vector", Dtype::bf16, vector::refusal, vector::create},
      Backend{"vector", Dtype::f32, vector::refusal, vector::create},
  };
  return kBackends;
}

const char* refusal(const Backend& backend, const GemmDesc& desc) {
  if (backend.operand == Dtype::bf16 && operand_of(desc) != Dtype::bf16)
    return desc.quant ? "x is not bf16" : "x and the weight are not both bf16";
  return backend.refusal(backend.operand);
}

Dtype operand_of(const GemmDesc& desc) {
  const bool exact = desc.quant || desc.weight == Dtype::bf16;
  return desc.x == Dtype::bf16 && exact ? Dtype::bf16 : Dtype::f32;
}

}  // namespace plait::gemm
