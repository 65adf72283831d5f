// Compiled with -mavx2 -mfma.
#include <immintrin.h>

#include "gemm/vector/rows.h"
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
};

}  // namespace

void multiply_avx2(const TileCall& call) { multiply<Avx2>(call); }

}  // namespace plait::gemm::vector
