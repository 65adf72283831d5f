// The rows of X in the form that a kernel reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gemm/depth.h"
#include "gemm/kernel.h"
#include "plait/gemm.h"

namespace plait::gemm {

// The place of rows in a kernel's form.
struct Rows {
  const std::byte* data;    // of the first row
  std::int64_t row_stride;  // bytes: from row to row in `plain`, from group to group in `tiles`

  // From row `row` (in `tiles`, the first of a group) and k on; k is counted with the padding, and
  // is a multiple of kKStep.
  const std::byte* at(const TileKernel& kernel, std::int64_t row, std::int64_t k) const;
};

// True if a kernel can read X where it is.
bool can_read_in_place(const GemmInput& x, const Depth& depth, const TileKernel& kernel);
Rows in_place(const GemmInput& x);

// Room for `rows` packed rows.
std::size_t packed_rows_bytes(std::int64_t rows, const Depth& depth, const TileKernel& kernel);
std::int64_t packed_row_stride(const Depth& depth, const TileKernel& kernel);

// Rows come in groups of this many.
inline constexpr std::int64_t kRowGroup = 16;

struct Packing {
  std::byte* to;  // packed_rows_bytes() bytes
  int threads;
};

// Packs these rows of X, the first of them as the first of a group.
Rows pack_rows(const GemmInput& x, Range rows, const Depth& depth, const TileKernel& kernel,
               const Packing& packing);

// The properties that two kernels must share to read the same packed rows. The reference packs
// none.
struct RowsForm {
  bool is_packed = false;
  Dtype operand = Dtype::f32;
  RowForm form = RowForm::plain;

  bool operator==(const RowsForm&) const = default;
};
RowsForm form_of(const TileKernel* kernel);

}  // namespace plait::gemm
