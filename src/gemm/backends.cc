#include "gemm/backends.h"

#include <array>

#include "gemm/amx/factory.h"
#include "gemm/vector/factory.h"
#include "gemm/xsmm/factory.h"

namespace plait::gemm {

// A new instruction set is a line here, and a folder.
std::span<const Backend> backends() {
  static constexpr std::array kBackends = {
      Backend{"amx", amx::refusal, amx::create},
      Backend{"xsmm", xsmm::refusal, xsmm::create},
      Backend{"vector", vector::refusal, vector::create},
  };
  return kBackends;
}

Dtype operand_of(const GemmDesc& desc) {
  return desc.x == Dtype::bf16 && desc.weight == Dtype::bf16 ? Dtype::bf16 : Dtype::f32;
}

}  // namespace plait::gemm
