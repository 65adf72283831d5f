// Compiled with -march=armv8.2-a+bf16.
//
// A pair of bf16 is multiplied by two instructions, each of which adds one product to an f32 and
// rounds once. That is the chain which other sets make of the same values in f32, so the bits are
// theirs. BFDOT and BFMMLA would take half the instructions, and round otherwise.
#include "gemm/vector/arm/registers.h"
#include "gemm/vector/arm/sets.h"
#include "gemm/vector/rows.h"
#include "gemm/vector/turned.h"

namespace plait::gemm::vector {
namespace {

struct NeonBf16 : NeonRegisters {
  static constexpr int kWordK = 2;

  static Vector multiply_add(Vector a, Vector b, Vector c) {
    const bfloat16x8_t x = vreinterpretq_bf16_f32(a);
    const bfloat16x8_t weight = vreinterpretq_bf16_f32(b);
    return vbfmlaltq_f32(vbfmlalbq_f32(c, x, weight), x, weight);
  }
};

}  // namespace

void multiply_neon_bf16(const TileCall& call) { multiply<NeonBf16>(call); }

PlainRows plain_rows_neon_bf16(Storage storage) {
  if (storage != Storage::bf16) return {};
  return plain_rows<NeonBf16, AsIs<NeonBf16>>();
}

}  // namespace plait::gemm::vector
