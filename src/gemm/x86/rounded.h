// Sums on their way out, in AVX-512.
//
// The bf16 rounding is done with integers, as in tensor: the processor's own flushes denormals.
#pragma once

#include <immintrin.h>

#include <cstddef>

#include "plait/dtype.h"

namespace plait::gemm {

// In the upper half of each.
[[gnu::target("avx512f,avx512bw"), gnu::always_inline]] inline __m512i rounded_to_bf16(
    __m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
  rounded = _mm512_mask_add_epi32(rounded, odd, rounded, _mm512_set1_epi32(1));
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
}

// Makes every NaN tensor::kNan.
[[gnu::target("avx512f,avx512bw"), gnu::always_inline]] inline __m512 with_one_nan(__m512 value) {
  // One digit per class of numbers, quiet NaNs lowest: 3 makes it 0xffc00000, 0 leaves it alone.
  return _mm512_fixupimm_ps(value, value, _mm512_set1_epi32(0x33), 0);
}

// Two vectors to one: a store that narrows takes an EPYC tens of cycles.
[[gnu::target("avx512f,avx512bw"), gnu::always_inline]] inline void store_as_bf16(void* to,
                                                                                  __m512 low,
                                                                                  __m512 high) {
  const __m512i upper =
      _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                       25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  _mm512_storeu_si512(
      to, _mm512_permutex2var_epi16(rounded_to_bf16(low), upper, rounded_to_bf16(high)));
}

// A row of 64 sums, as Loops::finish stores them.
[[gnu::target("avx512f,avx512bw"), gnu::always_inline]] inline void store_row(void* to, Dtype dtype,
                                                                              const __m512* sums) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  auto* bytes = static_cast<std::byte*>(to);
  switch (dtype) {
    case Dtype::f32:
      for (std::ptrdiff_t v = 0; v < 4; ++v)
        _mm512_storeu_ps(bytes + 64 * v, with_one_nan(sums[v]));
      break;
    case Dtype::bf16:
      store_as_bf16(bytes, with_one_nan(sums[0]), with_one_nan(sums[1]));
      store_as_bf16(bytes + 64, with_one_nan(sums[2]), with_one_nan(sums[3]));
      break;
    case Dtype::f16:
      for (std::ptrdiff_t v = 0; v < 4; ++v) {
        // All of them: gcc 12 takes the intrinsic without a mask for a mistake.
        const __m256i halves = _mm512_maskz_cvtps_ph(0xffff, with_one_nan(sums[v]), kNearest);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes + 32 * v), halves);
      }
      break;
    case Dtype::s8:
      break;  // refused before
  }
}

}  // namespace plait::gemm
