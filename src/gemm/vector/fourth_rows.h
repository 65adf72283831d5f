// The addresses of rows that are the same distance apart.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait::gemm::vector {

// Rows 0, 4, 8 and 12 of `Rows`, and what leads to the three rows after each: an instruction adds a
// stride, or twice a stride, to an address by itself. Left alone, gcc 12 keeps an address for each
// row, more than there are registers.
struct FourthRows {
  std::int64_t stride;
  std::int64_t three;      // strides
  const std::byte* of[4];  // NOLINT(*-avoid-c-arrays): aggregates are taken apart

  template <int Rows>
  [[gnu::always_inline]] static FourthRows from(const std::byte* first, std::int64_t stride,
                                                std::int64_t three) {
    FourthRows rows = {.stride = stride, .three = three, .of = {}};
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < Rows / 4; ++i, first += 4 * stride) {
      asm("" : "+r"(first));
      rows.of[i] = first;
    }
    return rows;
  }

  // Asks for a line of each into the second cache: in the first, rows a power of two of bytes apart
  // would drive one another out.
  template <int Rows>
  [[gnu::always_inline]] void ask() const {
#pragma GCC unroll 4
    for (int i = 0; i < Rows / 4; ++i) {
      __builtin_prefetch(of[i], /*rw=*/0, /*locality=*/2);
      __builtin_prefetch(of[i] + stride, /*rw=*/0, /*locality=*/2);
      __builtin_prefetch(of[i] + 2 * stride, /*rw=*/0, /*locality=*/2);
      __builtin_prefetch(of[i] + three, /*rw=*/0, /*locality=*/2);
    }
  }
};

}  // namespace plait::gemm::vector
