// The four element types that plait computes with, and exact conversions between them.
//
//   plait::Bf16 half(0.1F);                         // rounded to nearest, ties to even
//   float back = static_cast<float>(half);          // exact
//   plait::convert(weights_f32, Dtype::f32, weights_bf16, Dtype::bf16, n);
//
// A conversion depends on its input alone: not on the thread's rounding mode, not on whether it
// flushes denormals, not on the processor. Infinities stay; what overflows becomes an infinity;
// denormals are kept. Narrowing a NaN makes it quiet and keeps the top bits of its payload;
// widening is exact, and f16 NaNs become quiet.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "plait/export.h"

namespace plait {

enum class Dtype : std::uint8_t { f32, bf16, f16, s8 };

// The dtype of a view before one is set; no element has it.
inline constexpr Dtype kNoDtype = static_cast<Dtype>(0xff);

PLAIT_EXPORT std::string_view name(Dtype dtype);

// The inverse of name(); nullopt for any other text.
PLAIT_EXPORT std::optional<Dtype> parse_dtype(std::string_view text);

// Bytes of one element.
constexpr std::size_t size_of(Dtype dtype) {
  if (dtype == Dtype::f32) return 4;
  return dtype == Dtype::s8 ? 1 : 2;
}

// u, such that rounding x to `dtype` changes it by at most u·|x|, without overflow and denormals. 0
// for s8, which rounds by up to a half, whatever the size of x.
constexpr double unit_roundoff(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return 0x1p-24;
    case Dtype::bf16:
      return 0x1p-8;
    case Dtype::f16:
      return 0x1p-11;
    case Dtype::s8:
      break;
  }
  return 0;
}

// The upper half of an f32: its exponent's range, 8 bits of precision.
struct Bf16 {
  std::uint16_t bits = 0;

  Bf16() = default;
  constexpr explicit Bf16(float value) : bits(narrowed(std::bit_cast<std::uint32_t>(value))) {}
  constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

  static constexpr Bf16 from_bits(std::uint16_t bits) {
    Bf16 value;
    value.bits = bits;
    return value;
  }

 private:
  static constexpr std::uint16_t narrowed(std::uint32_t value) {
    const bool nan = (value & 0x7fffffffU) > 0x7f800000U;
    const std::uint32_t rounded = value + 0x7fffU + ((value >> 16) & 1U);
    return static_cast<std::uint16_t>((nan ? value | 0x400000U : rounded) >> 16);
  }
};

// IEEE 754 binary16: 11 bits of precision, at most 65504, denormals down to 2^-24.
struct F16 {
  std::uint16_t bits = 0;

  F16() = default;
  constexpr explicit F16(float value) : bits(narrowed(std::bit_cast<std::uint32_t>(value))) {}
  constexpr explicit operator float() const {
    const std::uint32_t sign = (bits & 0x8000U) << 16;
    return std::bit_cast<float>(sign | widened(bits & 0x7fffU));
  }

  static constexpr F16 from_bits(std::uint16_t bits) {
    F16 value;
    value.bits = bits;
    return value;
  }

 private:
  static constexpr std::uint16_t narrowed(std::uint32_t value) {
    const std::uint32_t sign = (value >> 16) & 0x8000U;
    return static_cast<std::uint16_t>(sign | narrowed_magnitude(value & 0x7fffffffU));
  }

  static constexpr std::uint32_t narrowed_magnitude(std::uint32_t value) {
    if (value > 0x7f800000U) return 0x7e00U | ((value >> 13) & 0x3ffU);
    if (value >= 0x477ff000U) return 0x7c00U;  // 65520 and more
    if (value <= 0x33000000U) return 0;        // 2^-25, a tie, goes to even
    if (value >= 0x38800000U) return (value - 0x38000000U + 0xfffU + ((value >> 13) & 1U)) >> 13;
    // Below 2^-14 the result counts units of 2^-24: 2^-24·1.5 = 0xc00000·2^-47 → 0xc00000 >> 23.
    const std::uint32_t shift = 126U - (value >> 23);
    const std::uint32_t digits = (value & 0x7fffffU) | 0x800000U;
    const std::uint32_t whole = digits >> shift;
    return (digits + (1U << (shift - 1)) - 1U + (whole & 1U)) >> shift;
  }

  static constexpr std::uint32_t widened(std::uint32_t value) {
    if (value > 0x7c00U) return 0x7fc00000U | (value << 13);
    if (value == 0x7c00U) return 0x7f800000U;
    if (value >= 0x400U) return (value << 13) + 0x38000000U;
    return std::bit_cast<std::uint32_t>(static_cast<float>(value) * 0x1p-24F);
  }
};

static_assert(sizeof(Bf16) == 2 && sizeof(F16) == 2);

// Element is what one element of some Dtype is in C++, and kDtypeOf says of which.
template <class T>
concept Element = std::same_as<T, float> || std::same_as<T, Bf16> || std::same_as<T, F16> ||
                  std::same_as<T, std::int8_t>;

template <Element T>
inline constexpr Dtype kDtypeOf = std::same_as<T, float>  ? Dtype::f32
                                  : std::same_as<T, Bf16> ? Dtype::bf16
                                  : std::same_as<T, F16>  ? Dtype::f16
                                                          : Dtype::s8;

// Converts `n` elements in memory that the CPU can read; the pointers need no alignment. To s8:
// rounded to nearest, ties to even, saturated at -128 and 127, NaN becomes 0. `to` may be `from` if
// its elements are not wider; otherwise the two must not overlap.
PLAIT_EXPORT void convert(const void* from, Dtype from_dtype, void* to, Dtype to_dtype,
                          std::size_t n);

}  // namespace plait
