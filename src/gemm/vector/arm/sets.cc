#include "gemm/vector/sets.h"

#include <array>

#include "gemm/vector/arm/sets.h"

namespace plait::gemm::vector {
namespace {

using base::InstructionSet;

// More rows would have other bits by the functions for few.
PlainRows no_plain_rows(Storage /*storage*/) { return {}; }

constexpr std::array<Set, 3> kSets = {
    Set{.name = "vector-neon-bfmmla",
        .needs = InstructionSet::neon_bfmmla,
        .multiply = multiply_neon_bfmmla,
        .operand = Dtype::bf16,
        .fused = false,
        .rounds = false,
        .plain_rows = no_plain_rows},
    Set{.name = "vector-neon-bf16",
        .needs = InstructionSet::neon_bf16,
        .multiply = multiply_neon_bf16,
        .operand = Dtype::bf16,
        .fused = true,
        .rounds = false,
        .plain_rows = plain_rows_neon_bf16},
    Set{.name = "vector-neon",
        .needs = InstructionSet::basic,
        .multiply = multiply_neon,
        .operand = Dtype::f32,
        .fused = true,
        .rounds = false,
        .plain_rows = plain_rows_neon},
};

}  // namespace

std::span<const Set> sets() { return kSets; }

}  // namespace plait::gemm::vector
