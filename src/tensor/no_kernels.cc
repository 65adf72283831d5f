// Processors without kernels of their own use the portable ones.
#include <array>

#include "tensor/kernels.h"

namespace plait::tensor {

std::span<const Kernels* const> kernel_sets() {
  static const std::array<const Kernels*, 1> sets = {&portable_kernels()};
  return sets;
}

}  // namespace plait::tensor
