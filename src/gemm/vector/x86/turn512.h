// 16 rows of 16 words, turned in registers of AVX-512.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "gemm/vector/fourth_rows.h"

namespace plait::gemm::vector {

// Eight words of a row, and of the fourth row after it.
[[gnu::target("avx512f"), gnu::always_inline]] inline __m512 two_rows(const std::byte* row,
                                                                      const std::byte* fourth) {
  const __m256d low = _mm256_loadu_pd(reinterpret_cast<const double*>(row));
  const __m256d high = _mm256_loadu_pd(reinterpret_cast<const double*>(fourth));
  return _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castpd256_pd512(low), high, 1));
}

// Word j of row i becomes lane i of vector j. Halves of rows are put together as they are read, so
// that three rounds of shuffles are left of four: 48 for a KiB.
[[gnu::target("avx512f"), gnu::always_inline]] inline void turn_square(const FourthRows& rows,
                                                                       __m512* to) {
  const std::int64_t stride = rows.stride;
#pragma GCC unroll 2
  for (std::int64_t half = 0; half < 2; ++half, to += 8) {
    __m512 low[4];   // NOLINT(*-avoid-c-arrays): of rows 0 to 7, in words j and 4 + j
    __m512 high[4];  // NOLINT(*-avoid-c-arrays): of rows 8 to 15
#pragma GCC unroll 2
    for (std::int64_t part = 0; part < 2; ++part) {
      const std::byte* at = rows.of[2 * part] + half * 32;
      const std::byte* more = rows.of[2 * part + 1] + half * 32;
      const __m512 r0 = two_rows(at, more);
      const __m512 r1 = two_rows(at + stride, more + stride);
      const __m512 r2 = two_rows(at + 2 * stride, more + 2 * stride);
      const __m512 r3 = two_rows(at + rows.three, more + rows.three);
      const __m512 ab = _mm512_unpacklo_ps(r0, r1);
      const __m512 cd = _mm512_unpacklo_ps(r2, r3);
      const __m512 ab_high = _mm512_unpackhi_ps(r0, r1);
      const __m512 cd_high = _mm512_unpackhi_ps(r2, r3);
      auto& turned = part == 0 ? low : high;
      turned[0] = _mm512_shuffle_ps(ab, cd, 0x44);
      turned[1] = _mm512_shuffle_ps(ab, cd, 0xee);
      turned[2] = _mm512_shuffle_ps(ab_high, cd_high, 0x44);
      turned[3] = _mm512_shuffle_ps(ab_high, cd_high, 0xee);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      to[j] = _mm512_shuffle_f32x4(low[j], high[j], 0x88);
      to[j + 4] = _mm512_shuffle_f32x4(low[j], high[j], 0xdd);
    }
  }
}

}  // namespace plait::gemm::vector
