#include <arm_neon.h>

#include "gemm/vector/arm/sets.h"
#include "gemm/vector/plain.h"
#include "gemm/vector/rows.h"
#include "gemm/vector/turn_four.h"

namespace plait::gemm::vector {
namespace {

// There are 32 registers: six rows' sums take 24 of them, and the weight's vectors 4.
struct Neon {
  using Vector = float32x4_t;
  static constexpr int kWordK = 1;
  static constexpr int kLanes = 4;
  static constexpr int kRows = 6;
  static constexpr int vectors(int rows) { return rows <= 2 ? 8 : 4; }

  static Vector broadcast(float value) { return vdupq_n_f32(value); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return vfmaq_f32(c, a, b); }

  static constexpr int groups(int rows, int /*parts*/) { return rows <= 2 ? 2 : 1; }
  static constexpr int vectors_of_step(int rows) { return rows <= 2 ? 8 : rows <= 6 ? 4 : 2; }
  static Vector widen_f16(Lanes<Neon>::Halves halves) {
    return vcvt_f32_f16(reinterpret_cast<float16x4_t>(halves));
  }
  [[gnu::always_inline]] static void turn(const FourthRows& rows, Vector (&to)[kLanes]) {
    turn_four(rows, to);
  }
};

}  // namespace

void multiply_neon(const TileCall& call) { multiply<Neon>(call); }
PlainRows plain_rows_neon(Storage storage) { return plain_rows<Neon>(storage); }

}  // namespace plait::gemm::vector
