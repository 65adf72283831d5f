// Sums and conversions of four elements at a time. Instructions round to nearest by their own
// names, but that for f16, which obeys the thread's mode, as sums do.
#include <arm_neon.h>

#include <array>
#include <concepts>
#include <cstring>
#include <span>

#include "base/default_floats.h"
#include "tensor/sums_in_vectors.h"

namespace plait::tensor {
namespace {

struct Neon {
  using Vector = float32x4_t;
  static constexpr std::size_t kLanes = 4;

  template <Element T>
  static Vector load(const void* source, std::size_t i) {
    const auto* from = static_cast<const std::uint8_t*>(source) + i * sizeof(T);
    if constexpr (sizeof(T) == 4) {
      return vreinterpretq_f32_u8(vld1q_u8(from));
    } else if constexpr (sizeof(T) == 1) {
      std::uint32_t bytes;  // NOLINT(*-init-variables)
      std::memcpy(&bytes, from, sizeof(bytes));
      const int16x8_t halves = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(bytes)));
      return vcvtq_f32_s32(vmovl_s16(vget_low_s16(halves)));
    } else {
      const uint8x8_t halves = vld1_u8(from);
      if constexpr (kDtypeOf<T> == Dtype::f16) return vcvt_f32_f16(vreinterpret_f16_u8(halves));
      return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(halves), 16));
    }
  }

  template <Element T, bool AnyNan>
  static void store(void* out, std::size_t i, Vector value) {
    auto* to = static_cast<std::uint8_t*>(out) + i * sizeof(T);
    if constexpr (sizeof(T) == 4) {
      vst1q_u8(to, vreinterpretq_u8_f32(value));
    } else if constexpr (sizeof(T) == 1) {
      // Each step keeps what is too large at the largest; a NaN becomes 0.
      const int16x4_t halves = vqmovn_s32(vcvtnq_s32_f32(value));
      const int8x8_t bytes = vqmovn_s16(vcombine_s16(halves, halves));
      const std::uint32_t four = vget_lane_u32(vreinterpret_u32_s8(bytes), 0);
      std::memcpy(to, &four, sizeof(four));
    } else if constexpr (kDtypeOf<T> == Dtype::f16) {
      vst1_u8(to, vreinterpret_u8_f16(vcvt_f16_f32(value)));
    } else {
      vst1_u8(to, vreinterpret_u8_u16(to_bf16(value)));
    }
  }

  static Vector with_one_nan(Vector value) {
    return vbslq_f32(vceqq_f32(value, value), value, vreinterpretq_f32_u32(vdupq_n_u32(kNan)));
  }

 private:
  static uint16x4_t to_bf16(Vector value) {
    const uint32x4_t bits = vreinterpretq_u32_f32(value);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, odd), vdupq_n_u32(0x7fff));
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(value, value), rounded, quiet), 16);
  }
};

template <Element In, Element Out>
void sum(void* out, const void* const* sources, int count, std::size_t n) {
  if constexpr (std::same_as<Out, F16>) {
    if (count == 1) {
      const base::DefaultFloats floats;
      return sum_whole<Neon, In, Out>(out, sources, count, n);
    }
  }
  sum_whole<Neon, In, Out>(out, sources, count, n);
}

template <Element In>
constexpr std::array<Sum, kDtypes> kRow = {sum<In, float>, sum<In, Bf16>, sum<In, F16>,
                                           sum<In, std::int8_t>};

Kernels make() {
  Kernels made = portable_kernels();
  made.name = "neon";
  made.sums = {kRow<float>, kRow<Bf16>, kRow<F16>, kRow<std::int8_t>};
  return made;
}

}  // namespace

std::span<const Kernels* const> kernel_sets() {
  static const Kernels neon = make();
  static const std::array<const Kernels*, 2> sets = {&neon, &portable_kernels()};
  return sets;
}

}  // namespace plait::tensor
