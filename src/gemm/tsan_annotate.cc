// In builds with the thread sanitizer.
#include "gemm/tsan_annotate.h"

#include "gemm/rows.h"

extern "C" {
// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier): the sanitizer's names
void __tsan_read_range(const void* begin, std::size_t bytes);
void __tsan_write_range(void* begin, std::size_t bytes);
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)
}

namespace plait::gemm {

void tsan_annotate(const TileKernel& kernel, const TileCall& call) {
  const std::size_t k_bytes = static_cast<std::size_t>(call.k) * size_of(kernel.operand());
  const int at_once = kernel.row_form() == RowForm::plain ? 1 : static_cast<int>(kRowGroup);
  const std::byte* rows = call.rows;
  for (int row = 0; row < call.row_count; row += at_once, rows += call.row_stride)
    __tsan_read_range(rows, k_bytes * static_cast<std::size_t>(at_once));
  __tsan_read_range(call.panel, k_bytes * kPanelColumns);
  const std::size_t sums = sizeof(float) * kPanelColumns * static_cast<std::size_t>(call.row_count);
  for (int n = 0; n < call.nodes.count; ++n)
    __tsan_read_range(call.nodes.of[static_cast<std::size_t>(n)], sums);
  if (call.out.data == nullptr) {
    __tsan_write_range(call.sums, sums);
  } else {
    if (!call.first) __tsan_read_range(call.sums, sums);
    for (std::int64_t row = 0; row < call.row_count; ++row)
      __tsan_write_range(call.out.data + row * call.out.row_stride,
                         size_of(call.out.dtype) * kPanelColumns);
  }
}

void tsan_annotate(const ConstTensorView& read) {
  for (std::int64_t i = 0; i < read.rows; ++i) __tsan_read_range(read.row(i), read.row_bytes());
}

}  // namespace plait::gemm
