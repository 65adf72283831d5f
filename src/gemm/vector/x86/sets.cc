#include "gemm/vector/sets.h"

#include <array>

#include "gemm/vector/x86/sets.h"

namespace plait::gemm::vector {
namespace {

bool avx512_usable() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
}
bool avx512_bf16_usable() { return avx512_usable() && __builtin_cpu_supports("avx512bf16"); }
bool avx2_usable() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

constexpr std::array<Set, 4> kSets = {
    Set{.name = "vector-avx512-bf16",
        .usable = avx512_bf16_usable,
        .multiply = multiply_avx512_bf16,
        .operand = Dtype::bf16,
        .fused = true,
        .rounds = true},
    Set{.name = "vector-avx512",
        .usable = avx512_usable,
        .multiply = multiply_avx512,
        .operand = Dtype::f32,
        .fused = true,
        .rounds = true},
    Set{.name = "vector-avx2",
        .usable = avx2_usable,
        .multiply = multiply_avx2,
        .operand = Dtype::f32,
        .fused = true,
        .rounds = false},
    Set{.name = "vector-sse2",
        .usable = [] { return true; },
        .multiply = multiply_portable,
        .operand = Dtype::f32,
        .fused = false,
        .rounds = false},
};

}  // namespace

std::span<const Set> sets() { return kSets; }

}  // namespace plait::gemm::vector
