#include <array>

#include "gemm/vector/sets.h"

namespace plait::gemm::vector {
namespace {

constexpr std::array<Set, 1> kSets = {
    Set{.name = "vector",
        .needs = base::InstructionSet::sse2,
        .multiply = multiply_portable,
        .operand = Dtype::f32,
        .fused = true,
        .rounds = false},
};

}  // namespace

std::span<const Set> sets() { return kSets; }

}  // namespace plait::gemm::vector
