// The loops over elements, in one set for each instruction set that makes them faster.
//
// All sets give the same bits; only their speed differs. A set is a constant. Choosing one checks
// which instructions may be used, and takes a few nanoseconds.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/instruction_set.h"
#include "plait/dtype.h"

namespace plait::tensor {

// The bits of every NaN in a sum, which x86 returns for ∞ - ∞. Otherwise the compiler would decide
// which operand's payload an addition keeps.
inline constexpr std::uint32_t kNan = 0xffc00000U;

// Arm returns another NaN than x86 for ∞ - ∞.
inline float with_one_nan(float value) {
  return value == value ? value : std::bit_cast<float>(kNan);
}

// out[i] = round(((sources[0][i] + sources[1][i]) + (sources[2][i] + sources[3][i])) + ...), added
// in f32 as reduce.h says. If a sum of two or more is a NaN, it is kNan. A sum of one source is a
// conversion.
using Sum = void (*)(void* out, const void* const* sources, int count, std::size_t n);

// A sum of f32 with two results: `kept`, which may be one of the sources, and `out`, which must not
// be one and is written past the caches, as by stream_copy().
using StreamedSum = void (*)(void* out, void* kept, const void* const* sources, int count,
                             std::size_t n);

// Elements of a row from a group's first on, as coded_rows.h says: a code of one byte for each, and
// a bf16 for each group.
struct Coded {
  std::byte* codes;
  std::byte* scales;
};
using Encode = void (*)(const Coded& to, const float* from, std::size_t n);
using Decode = void (*)(float* to, const std::byte* codes, const std::byte* scales, std::size_t n);

// The scale of a group, given the bits of its largest magnitude.
inline Bf16 scale_of(std::uint32_t largest) {
  constexpr std::uint32_t kInfinity = 0x7f800000U;
  if (largest >= kInfinity) return Bf16(std::bit_cast<float>(kNan));
  const float exact = std::bit_cast<float>(largest) / 127;
  return Bf16(exact > 0x1p-126F ? exact : 0x1p-126F);
}

// The factor of a group's elements. 0: they are not all numbers, and their codes are 0.
inline float inverse_of(Bf16 scale) {
  const auto value = static_cast<float>(scale);
  return value == value ? 1 / value : 0;
}

// How many of the first sources are added before the others: 2 → 1, 3 → 2, 6 → 4, 8 → 4
constexpr int first_in_tree(int count) {
  int first = 1;
  while (2 * first < count) first *= 2;
  return first;
}

inline constexpr std::size_t kDtypes = 4;
using SumTable = std::array<std::array<Sum, kDtypes>, kDtypes>;  // [in][out]

struct Kernels {
  const char* name;
  base::InstructionSet needs;
  SumTable sums;
  Encode encode;
  Decode decode;
  StreamedSum streamed_sum = nullptr;  // null: no faster than a sum and a copy

  Sum sum(Dtype in, Dtype out) const {
    return sums[static_cast<std::size_t>(in)][static_cast<std::size_t>(out)];
  }
};

// All sets that were compiled, best first. The last one runs everywhere.
std::span<const Kernels* const> kernel_sets();

const Kernels& portable_kernels();

// The best set that this processor can run.
const Kernels& kernels();

}  // namespace plait::tensor
