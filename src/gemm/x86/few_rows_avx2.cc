// Compiled with -mavx2 -mfma -mf16c. Values are turned into f32 by what costs the fewest
// instructions: bf16 by shifting and masking, f16 by the instruction for it, s8 and s4 by shifts
// that extend the sign.
#include <immintrin.h>

#include "gemm/few_rows_in_vectors.h"

namespace plait::gemm {
namespace {

struct Avx2 {
  using Vector = __m256;
  static constexpr std::int64_t kLanes = 8;
  // The sums of so many rows have room in 16 registers, beside what the rows are multiplied by.
  static constexpr int kMostRows = 6;
  // The panel is passed through for each 64 columns, 32 or 16.
  static constexpr int vectors(int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : 2; }

  [[gnu::always_inline]] static Vector broadcast(float value) { return _mm256_set1_ps(value); }
  [[gnu::always_inline]] static Vector multiply_add(Vector a, Vector b, Vector c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  [[gnu::always_inline]] static Vector load(const float* from) { return _mm256_loadu_ps(from); }
  [[gnu::always_inline]] static void store(float* to, Vector value) { _mm256_storeu_ps(to, value); }
  [[gnu::always_inline]] static Vector widen(const std::int8_t* from) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadu_si64(from)));
  }

  // 8 columns' values at the even k of a pair, or at the odd one after it.
  template <Storage stored, bool Odd>
  [[gnu::always_inline]] static Vector values(const std::byte* from) {
    if constexpr (stored == Storage::bf16) {
      const __m256i both = words(from);
      return _mm256_castsi256_ps(Odd ? _mm256_and_si256(both, _mm256_set1_epi32(-0x10000))
                                     : _mm256_slli_epi32(both, 16));
    } else if constexpr (stored == Storage::f16) {
      const __m256i both = words(from);
      return widened(Odd ? _mm256_srli_epi32(both, 16)
                         : _mm256_and_si256(both, _mm256_set1_epi32(0xffff)));
    } else {
      constexpr int kBits = static_cast<int>(bits_of(stored));
      const __m256i both =
          stored == Storage::s8
              ? _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))
              : _mm256_cvtepi8_epi32(_mm_loadu_si64(from));
      return _mm256_cvtepi32_ps(_mm256_srai_epi32(Odd ? both : _mm256_slli_epi32(both, 32 - kBits),
                                                  Odd ? kBits : 32 - kBits));
    }
  }

 private:
  [[gnu::always_inline]] static __m256i words(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  // The low halves of eight words of at most 0xffff, as f32.
  [[gnu::always_inline]] static __m256 widened(__m256i words) {
    const __m256i packed = _mm256_packus_epi32(words, words);  // 0123 0123 4567 4567
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
  }
};

}  // namespace

FewRows few_rows_in_avx2(Storage storage) { return few_rows_in<Avx2, float>(storage); }

}  // namespace plait::gemm
