// Processors without a set of their own use the portable one.
#include <cstring>

#include "tensor/copy.h"
#include "tensor/kernels.h"

namespace plait::tensor {

#if !defined(__aarch64__)
std::span<const Kernels* const> kernel_sets() {
  static const std::array<const Kernels*, 1> sets = {&portable_kernels()};
  return sets;
}
#endif

void copy_ahead(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void stream_copy(void* to, const void* from, std::size_t bytes) { copy_ahead(to, from, bytes); }

void stream_fence() {}

}  // namespace plait::tensor
