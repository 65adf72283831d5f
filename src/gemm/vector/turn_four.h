// Turns a square of four words by four, for sets with four lanes.
#pragma once

#include <cstdint>
#include <cstring>

#include "gemm/vector/fourth_rows.h"

namespace plait::gemm::vector {

template <class Vector>
[[gnu::always_inline]] inline void turn_four(const FourthRows& rows, Vector (&to)[4]) {
  Vector row[4];  // NOLINT(*-avoid-c-arrays)
  for (std::int64_t i = 0; i < 4; ++i) std::memcpy(&row[i], rows.of[0] + i * rows.stride, 16);
  const Vector low = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
  const Vector low_more = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  const Vector high = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  const Vector high_more = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  to[0] = __builtin_shufflevector(low, low_more, 0, 1, 4, 5);
  to[1] = __builtin_shufflevector(low, low_more, 2, 3, 6, 7);
  to[2] = __builtin_shufflevector(high, high_more, 0, 1, 4, 5);
  to[3] = __builtin_shufflevector(high, high_more, 2, 3, 6, 7);
}

}  // namespace plait::gemm::vector
