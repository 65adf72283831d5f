// The loops over elements, once for every kind of processor that deserves its own.
//
// All sets give the same bits; they differ in speed only. A set is a constant: choosing one reads
// which instructions may be used and costs a few nanoseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/instruction_set.h"
#include "plait/dtype.h"

namespace plait::tensor {

// The bits of the one NaN that sums become which are not a number, the one that x86 makes of ∞ - ∞:
// which operand's payload an addition keeps is the compiler's choice.
inline constexpr std::uint32_t kNan = 0xffc00000U;

// out[i] = round(((sources[0][i] + sources[1][i]) + sources[2][i]) + ...), added in f32. A sum of
// two or more that is not a number is kNan. A sum of one is a conversion.
using Sum = void (*)(void* out, const void* const* sources, int count, std::size_t n);

// The same sum of f32 to two places: `kept`, which may be one of the sources, and `out`, which is
// none of them and is written past the caches, as by stream_copy().
using StreamedSum = void (*)(void* out, void* kept, const void* const* sources, int count,
                             std::size_t n);

inline constexpr std::size_t kDtypes = 4;
using SumTable = std::array<std::array<Sum, kDtypes>, kDtypes>;  // [in][out]

struct Kernels {
  const char* name;
  base::InstructionSet needs;
  SumTable sums;
  StreamedSum streamed_sum = nullptr;  // null: no faster than a sum and a copy

  Sum sum(Dtype in, Dtype out) const {
    return sums[static_cast<std::size_t>(in)][static_cast<std::size_t>(out)];
  }
};

// Every set that was compiled, best first; the last one is usable everywhere.
std::span<const Kernels* const> kernel_sets();

const Kernels& portable_kernels();

// The best set that this processor can run.
const Kernels& kernels();

}  // namespace plait::tensor
