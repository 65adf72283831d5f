#include "gemm/vector/arm/registers.h"
#include "gemm/vector/arm/sets.h"
#include "gemm/vector/rows.h"
#include "gemm/vector/turned.h"

namespace plait::gemm::vector {
namespace {

struct Neon : NeonRegisters {
  static constexpr int kWordK = 1;

  static Vector multiply_add(Vector a, Vector b, Vector c) { return vfmaq_f32(c, a, b); }
  static Vector widen_f16(Lanes<Neon>::Halves halves) {
    return vcvt_f32_f16(reinterpret_cast<float16x4_t>(halves));
  }
};

}  // namespace

void multiply_neon(const TileCall& call) { multiply<Neon>(call); }
PlainRows plain_rows_neon(Storage storage) { return plain_rows<Neon>(storage); }

}  // namespace plait::gemm::vector
