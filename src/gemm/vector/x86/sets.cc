#include "gemm/vector/sets.h"

#include <array>

#include "gemm/vector/x86/sets.h"

namespace plait::gemm::vector {
namespace {

using base::InstructionSet;

constexpr std::array<Set, 5> kSets = {
    Set{.name = "vector-avx512-bf16-in-f32",
        .needs = InstructionSet::avx512_bf16,
        .multiply = multiply_avx512_pairs,
        .operand = Dtype::bf16,
        .fused = true,
        .rounds = true,
        .plain_rows = plain_rows_avx512_pairs,
        .is_faster = base::multiplies_f32_faster},
    Set{.name = "vector-avx512-bf16",
        .needs = InstructionSet::avx512_bf16,
        .multiply = multiply_avx512_bf16,
        .operand = Dtype::bf16,
        .fused = true,
        .rounds = true,
        .plain_rows = plain_rows_avx512_bf16},
    Set{.name = "vector-avx512",
        .needs = InstructionSet::avx512,
        .multiply = multiply_avx512,
        .operand = Dtype::f32,
        .fused = true,
        .rounds = true,
        .plain_rows = plain_rows_avx512},
    Set{.name = "vector-avx2",
        .needs = InstructionSet::avx2,
        .multiply = multiply_avx2,
        .operand = Dtype::f32,
        .fused = true,
        .rounds = false,
        .plain_rows = plain_rows_avx2},
    Set{.name = "vector-sse2",
        .needs = InstructionSet::basic,
        .multiply = multiply_portable,
        .operand = Dtype::f32,
        .fused = false,
        .rounds = false,
        .plain_rows = plain_rows_portable},
};

}  // namespace

std::span<const Set> sets() { return kSets; }

}  // namespace plait::gemm::vector
