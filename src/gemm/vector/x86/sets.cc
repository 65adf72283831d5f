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
    Set{"vector-avx512-bf16", avx512_bf16_usable, multiply_avx512_bf16, Dtype::bf16,
        /*fused=*/true, /*rounds=*/true},
    Set{"vector-avx512", avx512_usable, multiply_avx512, Dtype::f32, /*fused=*/true,
        /*rounds=*/true},
    Set{"vector-avx2", avx2_usable, multiply_avx2, Dtype::f32, /*fused=*/true,
        /*rounds=*/false},
    Set{"vector-sse2", [] { return true; }, multiply_portable, Dtype::f32, /*fused=*/false,
        /*rounds=*/false},
};

}  // namespace

std::span<const Set> sets() { return kSets; }

}  // namespace plait::gemm::vector
