// Compiled with -mavx2 -mfma -mf16c.
#include <immintrin.h>

#include "gemm/vector/rows.h"
#include "gemm/vector/turned.h"
#include "gemm/vector/x86/sets.h"

namespace plait::gemm::vector {
namespace {

struct Avx2 {
  using Vector = __m256;
  static constexpr int kWordK = 1;
  static constexpr int kLanes = 8;
  static constexpr int kRows = 6;
  static constexpr int vectors(int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : 2; }

  static Vector broadcast(float value) { return _mm256_set1_ps(value); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }

  static constexpr int groups(int rows, int /*parts*/) { return rows <= 4 ? 2 : 1; }
  static constexpr int vectors_of_step(int rows) { return rows <= 2 ? 4 : rows <= 6 ? 2 : 1; }
  static constexpr int outputs(int vectors) { return kLanes / vectors; }
  static constexpr int kRowsOfSquares = 6;
  static Vector widen_f16(Lanes<Avx2>::Halves halves) {
    return _mm256_cvtph_ps(reinterpret_cast<__m128i>(halves));
  }
  // Halves of rows are put together as they are read, which takes no shuffle. Both halves of a row
  // are read one after the other, as in turn512.h.
  [[gnu::always_inline]] static void turn(const FourthRows& rows, Vector (&to)[kLanes]) {
    // NOLINTBEGIN(*-avoid-c-arrays)
    const std::int64_t offsets[4] = {0, rows.stride, 2 * rows.stride, rows.three};
    Vector read[2][4];
    // NOLINTEND(*-avoid-c-arrays)
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::byte* at = rows.of[0] + offsets[i];
      const std::byte* more = rows.of[1] + offsets[i];
      read[0][i] = two_rows(at, more);
      read[1][i] = two_rows(at + 16, more + 16);
      asm("" : "+x"(read[0][i]), "+x"(read[1][i]));
    }
#pragma GCC unroll 2
    for (std::int64_t half = 0; half < 2; ++half) {
      const Vector(&r)[4] = read[half];  // NOLINT(*-avoid-c-arrays)
      const Vector low = _mm256_unpacklo_ps(r[0], r[1]);
      const Vector low_more = _mm256_unpacklo_ps(r[2], r[3]);
      const Vector high = _mm256_unpackhi_ps(r[0], r[1]);
      const Vector high_more = _mm256_unpackhi_ps(r[2], r[3]);
      to[4 * half] = _mm256_shuffle_ps(low, low_more, 0x44);
      to[4 * half + 1] = _mm256_shuffle_ps(low, low_more, 0xee);
      to[4 * half + 2] = _mm256_shuffle_ps(high, high_more, 0x44);
      to[4 * half + 3] = _mm256_shuffle_ps(high, high_more, 0xee);
    }
  }

 private:
  // Four words of a row, and of the fourth row after it.
  [[gnu::always_inline]] static Vector two_rows(const std::byte* row, const std::byte* fourth) {
    const __m128 low = _mm_loadu_ps(reinterpret_cast<const float*>(row));
    const __m128 high = _mm_loadu_ps(reinterpret_cast<const float*>(fourth));
    return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
  }
};

}  // namespace

void multiply_avx2(const TileCall& call) { multiply<Avx2>(call); }
PlainRows plain_rows_avx2(Storage storage) { return plain_rows<Avx2>(storage); }

}  // namespace plait::gemm::vector
