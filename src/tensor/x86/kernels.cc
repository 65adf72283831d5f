#include "tensor/x86/kernels.h"

namespace plait::tensor {

std::span<const Kernels* const> kernel_sets() {
  static const std::array<const Kernels*, 3> sets = {&avx512_kernels(), &avx2_kernels(),
                                                     &portable_kernels()};
  return sets;
}

}  // namespace plait::tensor
