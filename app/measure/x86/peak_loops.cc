#include "measure/peak_loops.h"

#include <immintrin.h>

#include <array>

#include "base/instruction_set.h"
#include "gemm/amx/factory.h"

namespace plait::measure {
namespace {

// The number of independent sums: two instructions per cycle, each taking up to six cycles, and a
// few more if there are registers for them.
constexpr int kFewSums = 12;
constexpr int kSums = 16;

using base::InstructionSet;
using base::may_use;

bool avx2_usable() { return may_use(InstructionSet::avx2); }
bool avx512_usable() { return may_use(InstructionSet::avx512); }
bool pairs_are_fastest() {
  return may_use(InstructionSet::avx512_bf16) && !base::multiplies_f32_faster();
}
bool amx_usable() { return gemm::amx::refusal(Dtype::bf16) == nullptr; }

[[gnu::target("avx2,fma")]] double run_avx2(std::int64_t rounds) {
  __m256 sums[kFewSums] = {};
  const __m256 one = _mm256_set1_ps(1);
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (__m256& sum : sums) {
      sum = _mm256_fmadd_ps(one, one, sum);
      asm volatile("" : "+x"(sum));
    }
  }
  return kFewSums * 8 * 2;
}

[[gnu::target("avx512f")]] double run_avx512(std::int64_t rounds) {
  __m512 sums[kSums] = {};
  const __m512 one = _mm512_set1_ps(1);
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (__m512& sum : sums) {
      sum = _mm512_fmadd_ps(one, one, sum);
      asm volatile("" : "+v"(sum));
    }
  }
  return kSums * 16 * 2;
}

[[gnu::target("avx512f,avx512bf16")]] double run_bf16(std::int64_t rounds) {
  __m512 sums[kSums] = {};
  const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80));
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (__m512& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, ones, ones);
      asm volatile("" : "+v"(sum));
    }
  }
  return kSums * 32 * 2;
}

// The data of LDTILECFG: 16 rows of 64 bytes for each of the eight tiles.
struct alignas(64) Shapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::array<std::uint8_t, 14> reserved = {};
  std::array<std::uint16_t, 16> row_bytes = {64, 64, 64, 64, 64, 64, 64, 64};
  std::array<std::uint8_t, 16> rows = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Uses four tiles of sums, two of rows and two of columns, as in a product; nothing is loaded.
[[gnu::target("amx-tile,amx-bf16")]] double run_amx(std::int64_t rounds) {
  const Shapes shapes;
  std::array<std::uint16_t, 512> ones = {};
  ones.fill(0x3f80);
  asm volatile("" : : "r"(&shapes), "r"(&ones) : "memory");
  _tile_loadconfig(&shapes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones.data(), 64);
  _tile_loadd(5, ones.data(), 64);
  _tile_loadd(6, ones.data(), 64);
  _tile_loadd(7, ones.data(), 64);
  for (std::int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 4 * 16 * 16 * 32 * 2;
}

constexpr std::array kLoops = {
    PeakLoop{"AMX", amx_usable, run_amx},
    PeakLoop{"AVX-512 bf16 dot product", pairs_are_fastest, run_bf16},
    PeakLoop{"AVX-512 FMA", avx512_usable, run_avx512},
    PeakLoop{"AVX2 FMA", avx2_usable, run_avx2},
    PeakLoop{"SSE", always_usable, run_portable},
};
constexpr std::size_t kFirstOfF32 = 2;

}  // namespace

std::span<const PeakLoop> peak_loops(Dtype operand) {
  return std::span(kLoops).subspan(operand == Dtype::bf16 ? 0 : kFirstOfF32);
}

}  // namespace plait::measure
