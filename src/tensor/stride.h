// How far a view's rows are apart, in bytes.
#pragma once

#include <cstdint>

#include "plait/tensor_view.h"

namespace plait::tensor {

// Of at most one row nobody has to say it: what such a view has there may be beyond all numbers.
inline std::int64_t stride_bytes(const ConstTensorView& view) {
  return view.rows > 1 ? view.row_stride * static_cast<std::int64_t>(size_of(view.dtype)) : 0;
}

}  // namespace plait::tensor
