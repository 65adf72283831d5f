// A matrix into another one of the same shape, which may have another dtype.
#pragma once

#include <cstddef>

#include "plait/tensor_view.h"

namespace plait::tensor {

inline void copy_rows(const ConstTensorView& from, const TensorView& to) {
  for (std::int64_t row = 0; row < to.rows && to.cols > 0; ++row)
    convert(from.row(row), from.dtype, to.row(row), to.dtype, static_cast<std::size_t>(to.cols));
}

}  // namespace plait::tensor
