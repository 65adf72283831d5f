// Compiled with -mavx512f -mavx512bw -mavx512bf16.
#include <immintrin.h>

#include "gemm/vector/rows.h"
#include "gemm/vector/turned.h"
#include "gemm/vector/x86/sets.h"
#include "gemm/vector/x86/turn512.h"
#include "gemm/x86/rounded.h"

namespace plait::gemm::vector {
namespace {

struct Avx512Bf16 {
  using Vector = __m512;
  static constexpr int kWordK = 2;
  static constexpr int kLanes = 16;
  static constexpr int kRows = 6;
  static constexpr int vectors(int /*rows*/) { return 4; }

  // A pair's bits; nothing is calculated with them as a float.
  static Vector broadcast(float pair) { return _mm512_set1_ps(pair); }
  static Vector multiply_add(Vector a, Vector b, Vector c) {
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static void store(void* to, Dtype dtype, const Vector* sums) { store_row(to, dtype, sums); }

  // Two groups of outputs take turns if sums would wait for one another.
  static constexpr int groups(int rows, int /*parts*/) { return rows == 1 ? 2 : 1; }
  static constexpr int vectors_of_step(int rows) { return rows <= 4 ? 4 : 2; }
  [[gnu::always_inline]] static void turn(const FourthRows& rows, Vector (&to)[kLanes]) {
    turn_square(rows, to);
  }
};

}  // namespace

void multiply_avx512_bf16(const TileCall& call) { multiply<Avx512Bf16>(call); }

PlainRows plain_rows_avx512_bf16(Storage storage) {
  if (storage != Storage::bf16) return {};
  return plain_rows<Avx512Bf16, AsIs<Avx512Bf16>>();
}

}  // namespace plait::gemm::vector
