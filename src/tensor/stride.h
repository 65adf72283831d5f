// The distance between a view's rows, in bytes.
#pragma once

#include <cstdint>

#include "plait/tensor_view.h"

namespace plait::tensor {

// 0 for at most one row: the stride of such a view is unused, and may be too large to convert.
inline std::int64_t stride_bytes(const ConstTensorView& view) {
  return view.rows > 1 ? view.row_stride * static_cast<std::int64_t>(size_of(view.dtype)) : 0;
}

}  // namespace plait::tensor
