// Compiled with -mavx512f -mavx512bw.
#include <immintrin.h>

#include "gemm/vector/rows.h"
#include "gemm/vector/x86/sets.h"
#include "gemm/x86/rounded.h"

namespace plait::gemm::vector {
namespace {

struct Avx512 {
  using Vector = __m512;
  static constexpr int kWordK = 1;
  static constexpr int kLanes = 16;
  static constexpr int kRows = 6;
  static constexpr int vectors(int /*rows*/) { return 4; }

  static Vector broadcast(float value) { return _mm512_set1_ps(value); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static void store(void* to, Dtype dtype, const Vector* sums) { store_row(to, dtype, sums); }
};

}  // namespace

void multiply_avx512(const TileCall& call) { multiply<Avx512>(call); }

}  // namespace plait::gemm::vector
