// The rows of X in the form that a kernel reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gemm/depth.h"
#include "gemm/kernel.h"
#include "plait/gemm.h"

namespace plait::gemm {

// Where rows are, once they are in a kernel's form.
struct Rows {
  const std::byte* data;    // of the first row
  std::int64_t row_stride;  // bytes: from row to row in `plain`, from group to group in `tiles`

  // From row `row` (in `tiles`, the first of a group) and k on; k is counted with the padding, and
  // is a multiple of kKStep.
  const std::byte* at(const TileKernel& kernel, std::int64_t row, std::int64_t k) const;
};

// Whether a kernel can read X where it is.
bool can_read_in_place(const Input& x, const Depth& depth, const TileKernel& kernel);
Rows in_place(const Input& x);

// Room for `rows` packed rows.
std::size_t packed_rows_bytes(std::int64_t rows, const Depth& depth, const TileKernel& kernel);
std::int64_t packed_row_stride(const Depth& depth, const TileKernel& kernel);

// Rows come in groups of this many, packed by any thread in any order.
inline constexpr std::int64_t kRowGroup = 16;

// Packs rows [begin, end) of X, at most a group, into `to`, which is where that group belongs.
void pack_rows(const Input& x, std::int64_t begin, std::int64_t end, const Depth& depth,
               const TileKernel& kernel, std::byte* to);

}  // namespace plait::gemm
