// Processors without sets of their own use the portable one.
#include <array>

#include "gemm/vector/sets.h"

namespace plait::gemm::vector {

std::span<const Set> sets() {
  static constexpr std::array<Set, 1> kSets = {
      Set{.name = "vector",
          .needs = base::InstructionSet::basic,
          .multiply = multiply_portable,
          .operand = Dtype::f32,
          .fused = true,
          .rounds = false,
          .plain_rows = plain_rows_portable},
  };
  return kSets;
}

}  // namespace plait::gemm::vector
