// The loops over elements, in one set for each instruction set that makes them faster.
//
// All sets give the same bits; only their speed differs. A set is a constant. Choosing one checks
// which instructions may be used, and takes a few nanoseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/instruction_set.h"
#include "plait/dtype.h"

namespace plait::tensor {

// The bits of every NaN in a sum, which x86 returns for ∞ - ∞. Otherwise the compiler would decide
// which operand's payload an addition keeps.
inline constexpr std::uint32_t kNan = 0xffc00000U;

// out[i] = round(((sources[0][i] + sources[1][i]) + (sources[2][i] + sources[3][i])) + ...), added
// in f32 as reduce.h says. If a sum of two or more is a NaN, it is kNan. A sum of one source is a
// conversion.
using Sum = void (*)(void* out, const void* const* sources, int count, std::size_t n);

// A sum of f32 with two results: `kept`, which may be one of the sources, and `out`, which must not
// be one and is written past the caches, as by stream_copy().
using StreamedSum = void (*)(void* out, void* kept, const void* const* sources, int count,
                             std::size_t n);

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
