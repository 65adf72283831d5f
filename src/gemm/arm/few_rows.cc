// Few rows in NEON. A pair of bf16 is multiplied in f32, the even k first, which gives the bits of
// Arm's instructions for bf16 (vector/arm/neon_bf16.cc): s8 and s4 are exact either way.
#include <arm_neon.h>

#include "gemm/few_rows_in_vectors.h"

namespace plait::gemm {
namespace {

struct Neon {
  using Vector = float32x4_t;
  static constexpr std::int64_t kLanes = 4;
  static constexpr int kMostRows = 6;
  // The sums take at most 24 of 32 registers.
  static constexpr int vectors(int rows) { return rows <= 2 ? 8 : 4; }

  static Vector broadcast(float value) { return vdupq_n_f32(value); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return vfmaq_f32(c, a, b); }
  static Vector load(const float* from) { return vld1q_f32(from); }
  static void store(float* to, Vector value) { vst1q_f32(to, value); }
  static Vector widen(const std::int8_t* from) { return vcvtq_f32_s32(four(from)); }

  template <Storage stored, bool Odd>
  static Vector values(const std::byte* from) {
    if constexpr (stored == Storage::bf16) {
      const uint32x4_t both = words(from);
      return vreinterpretq_f32_u32(Odd ? vandq_u32(both, vdupq_n_u32(0xffff0000U))
                                       : vshlq_n_u32(both, 16));
    } else if constexpr (stored == Storage::f16) {
      const uint32x4_t both = words(from);
      const uint16x4_t halves = Odd ? vshrn_n_u32(both, 16) : vmovn_u32(both);
      return vcvt_f32_f16(vreinterpret_f16_u16(halves));
    } else {
      constexpr int kBits = static_cast<int>(bits_of(stored));
      int32x4_t both;
      if constexpr (stored == Storage::s8) {
        std::int16_t pairs[4];  // NOLINT(*-avoid-c-arrays)
        std::memcpy(pairs, from, sizeof(pairs));
        both = vmovl_s16(vld1_s16(pairs));
      } else {
        both = four(reinterpret_cast<const std::int8_t*>(from));
      }
      // Arithmetic shifts keep the sign of the half that is on top.
      if constexpr (Odd) return vcvtq_f32_s32(vshrq_n_s32(both, kBits));
      return vcvtq_f32_s32(vshrq_n_s32(vshlq_n_s32(both, 32 - kBits), 32 - kBits));
    }
  }

 private:
  static uint32x4_t words(const std::byte* from) {
    return vreinterpretq_u32_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(from)));
  }
  // Four bytes, with their signs.
  static int32x4_t four(const std::int8_t* from) {
    std::uint32_t bytes;  // NOLINT(*-init-variables)
    std::memcpy(&bytes, from, sizeof(bytes));
    const int16x8_t halves = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(bytes)));
    return vmovl_s16(vget_low_s16(halves));
  }
};

}  // namespace

FewRows few_rows_in_sequence(Storage storage) { return few_rows_in<Neon, float>(storage); }
FewRows few_rows_in_pairs(Storage storage) { return few_rows_in<Neon, Bf16>(storage); }

}  // namespace plait::gemm
