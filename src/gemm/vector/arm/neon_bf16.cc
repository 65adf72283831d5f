// Compiled with -march=armv8.2-a+bf16.
//
// A pair of bf16 is multiplied by two instructions, each of which adds one product to an f32 and
// rounds once. That is the chain which other sets make of the same values in f32, so the bits are
// theirs. BFDOT and BFMMLA would take half the instructions, and round otherwise.
#include <arm_neon.h>

#include "gemm/vector/arm/sets.h"
#include "gemm/vector/plain.h"
#include "gemm/vector/rows.h"
#include "gemm/vector/turn_four.h"

namespace plait::gemm::vector {
namespace {

struct NeonBf16 {
  using Vector = float32x4_t;
  static constexpr int kWordK = 2;
  static constexpr int kLanes = 4;
  static constexpr int kRows = 6;
  static constexpr int vectors(int rows) { return rows <= 2 ? 8 : 4; }

  // A pair's bits; nothing is calculated with them as a float.
  static Vector broadcast(float pair) { return vdupq_n_f32(pair); }
  static Vector multiply_add(Vector a, Vector b, Vector c) {
    const bfloat16x8_t x = vreinterpretq_bf16_f32(a);
    const bfloat16x8_t weight = vreinterpretq_bf16_f32(b);
    return vbfmlaltq_f32(vbfmlalbq_f32(c, x, weight), x, weight);
  }

  static constexpr int groups(int rows, int /*parts*/) { return rows <= 2 ? 2 : 1; }
  static constexpr int vectors_of_step(int rows) { return rows <= 2 ? 8 : rows <= 6 ? 4 : 2; }
  [[gnu::always_inline]] static void turn(const FourthRows& rows, Vector (&to)[kLanes]) {
    turn_four(rows, to);
  }
};

}  // namespace

void multiply_neon_bf16(const TileCall& call) { multiply<NeonBf16>(call); }

PlainRows plain_rows_neon_bf16(Storage storage) {
  if (storage != Storage::bf16) return {};
  return {kMostPlainRows, multiply_plain<NeonBf16, AsIs<NeonBf16>>};
}

}  // namespace plait::gemm::vector
