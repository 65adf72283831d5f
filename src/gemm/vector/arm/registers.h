// The sets of NEON share this: registers of four f32, of which there are 32. Six rows' sums take 24
// of them, and the weight's vectors 4.
#pragma once

#include <arm_neon.h>

#include "gemm/vector/turn_four.h"

namespace plait::gemm::vector {

struct NeonRegisters {
  using Vector = float32x4_t;
  static constexpr int kLanes = 4;
  static constexpr int kRows = 6;
  static constexpr int vectors(int rows) { return rows <= 2 ? 8 : 4; }

  // The bits of a word, an f32 or a pair of bf16: nothing is calculated with it here.
  [[gnu::always_inline]] static Vector broadcast(float word) { return vdupq_n_f32(word); }

  static constexpr int groups(int rows, int /*parts*/) { return rows <= 2 ? 2 : 1; }
  static constexpr int vectors_of_step(int rows) { return rows <= 2 ? 8 : rows <= 6 ? 4 : 2; }
  static constexpr int outputs(int /*vectors*/) { return kLanes; }
  [[gnu::always_inline]] static void turn(const FourthRows& rows, Vector (&to)[kLanes]) {
    turn_four(rows, to);
  }
};

}  // namespace plait::gemm::vector
