// Blocks between matrices, where their rows lie apart, and slots, where they lie together.
#pragma once

#include <cstddef>
#include <cstring>

#include "plait/tensor_view.h"

namespace plait::overlap {

inline void copy_block(const ConstTensorView& from, std::byte* to) {
  if (from.bytes() == 0) return;
  if (from.is_contiguous()) {
    std::memcpy(to, from.data, from.bytes());
    return;
  }
  for (std::int64_t row = 0; row < from.rows; ++row, to += from.row_bytes())
    std::memcpy(to, from.row(row), from.row_bytes());
}

inline void copy_block(const std::byte* from, const TensorView& to) {
  if (to.bytes() == 0) return;
  if (to.is_contiguous()) {
    std::memcpy(to.data, from, to.bytes());
    return;
  }
  for (std::int64_t row = 0; row < to.rows; ++row, from += to.row_bytes())
    std::memcpy(to.row(row), from, to.row_bytes());
}

}  // namespace plait::overlap
