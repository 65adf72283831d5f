#include "gemm/x86/loops.h"

#include <array>

namespace plait::gemm {

std::span<const Loops* const> loop_sets() {
  static const std::array<const Loops*, 3> sets = {&avx512_loops(), &avx2_loops(),
                                                   &portable_loops()};
  return sets;
}

}  // namespace plait::gemm
