// Compiled for AVX-512. s4 has code of its own.
#include <immintrin.h>

#include "gemm/few_rows_in_vectors.h"

namespace plait::gemm {
namespace {

struct Avx512 {
  using Vector = __m512;
  static constexpr std::int64_t kLanes = 16;
  static constexpr bool kHasOwnS4 = true;
  static constexpr int kMostRows = 6;  // whose sums are 24 of 32 registers
  static constexpr int vectors(int /*rows*/) { return 4; }

  [[gnu::always_inline]] static Vector broadcast(float value) { return _mm512_set1_ps(value); }
  [[gnu::always_inline]] static Vector multiply_add(Vector a, Vector b, Vector c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  [[gnu::always_inline]] static Vector load(const float* from) { return _mm512_loadu_ps(from); }
  [[gnu::always_inline]] static void store(float* to, Vector value) { _mm512_storeu_ps(to, value); }
  [[gnu::always_inline]] static Vector widen(const std::int8_t* from) {
    const auto* bytes = reinterpret_cast<const __m128i*>(from);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(bytes)));
  }

  // 16 columns' values at the even k of a pair, or at the odd one after it.
  template <Storage stored, bool Odd>
  [[gnu::always_inline]] static Vector values(const std::byte* from) {
    if constexpr (stored == Storage::bf16) {
      const __m512i both = _mm512_loadu_si512(from);
      return _mm512_castsi512_ps(Odd ? _mm512_and_si512(both, _mm512_set1_epi32(-0x10000))
                                     : _mm512_slli_epi32(both, 16));
    } else if constexpr (stored == Storage::f16) {
      const __m512i both = _mm512_loadu_si512(from);
      return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(Odd ? _mm512_srli_epi32(both, 16) : both));
    } else {
      const auto* pairs = reinterpret_cast<const __m256i*>(from);
      const __m512i both = _mm512_cvtepi16_epi32(_mm256_loadu_si256(pairs));
      return _mm512_cvtepi32_ps(
          _mm512_srai_epi32(Odd ? both : _mm512_slli_epi32(both, 24), Odd ? 8 : 24));
    }
  }
};

}  // namespace

FewRows few_rows_in_avx512(Storage storage) { return few_rows_in<Avx512, float>(storage); }

}  // namespace plait::gemm
