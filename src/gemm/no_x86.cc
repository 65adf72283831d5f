#include <array>

#include "gemm/loops.h"

namespace plait::gemm {

std::span<const Loops* const> loop_sets() {
  static const std::array<const Loops*, 1> sets = {&portable_loops()};
  return sets;
}

}  // namespace plait::gemm
