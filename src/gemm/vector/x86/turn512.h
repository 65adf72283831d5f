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
// that three rounds of shuffles are left of four: 48 for a KiB. Both halves of a row are read one
// after the other: a first cache of eight ways doesn't keep 16 lines a power of two of bytes apart
// until their second halves are read.
[[gnu::target("avx512f"), gnu::always_inline]] inline void turn_square(const FourthRows& rows,
                                                                       __m512* to) {
  // NOLINTNEXTLINE(*-avoid-c-arrays)
  const std::int64_t offsets[4] = {0, rows.stride, 2 * rows.stride, rows.three};
  // Words j and 4 + j of eight rows: of rows 0 to 7 and 8 to 15, and of the halves of rows.
  __m512 turned[2][2][4];  // NOLINT(*-avoid-c-arrays)
#pragma GCC unroll 2
  for (std::int64_t part = 0; part < 2; ++part) {
    __m512 read[2][4];  // NOLINT(*-avoid-c-arrays)
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::byte* at = rows.of[2 * part] + offsets[i];
      const std::byte* more = rows.of[2 * part + 1] + offsets[i];
      read[0][i] = two_rows(at, more);
      read[1][i] = two_rows(at + 32, more + 32);
      asm("" : "+v"(read[0][i]), "+v"(read[1][i]));  // gcc 12 would put reads off
    }
#pragma GCC unroll 2
    for (std::int64_t half = 0; half < 2; ++half) {
      const __m512(&r)[4] = read[half];        // NOLINT(*-avoid-c-arrays)
      __m512(&words)[4] = turned[part][half];  // NOLINT(*-avoid-c-arrays)
      const __m512 ab = _mm512_unpacklo_ps(r[0], r[1]);
      const __m512 cd = _mm512_unpacklo_ps(r[2], r[3]);
      const __m512 ab_high = _mm512_unpackhi_ps(r[0], r[1]);
      const __m512 cd_high = _mm512_unpackhi_ps(r[2], r[3]);
      words[0] = _mm512_shuffle_ps(ab, cd, 0x44);
      words[1] = _mm512_shuffle_ps(ab, cd, 0xee);
      words[2] = _mm512_shuffle_ps(ab_high, cd_high, 0x44);
      words[3] = _mm512_shuffle_ps(ab_high, cd_high, 0xee);
    }
  }
#pragma GCC unroll 2
  for (std::int64_t half = 0; half < 2; ++half, to += 8) {
#pragma GCC unroll 4
    for (std::int64_t j = 0; j < 4; ++j) {
      to[j] = _mm512_shuffle_f32x4(turned[0][half][j], turned[1][half][j], 0x88);
      to[j + 4] = _mm512_shuffle_f32x4(turned[0][half][j], turned[1][half][j], 0xdd);
    }
  }
}

}  // namespace plait::gemm::vector
