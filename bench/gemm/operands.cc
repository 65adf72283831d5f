#include "operands.h"

#include "tensor/fill.h"

namespace plait::bench {

TensorView Operands::place(Place& buffers, Dtype dtype, std::int64_t rows, std::int64_t cols) {
  Buffer& buffer = buffers[dtype];
  if (buffer.bytes() == 0) {
    buffer = Buffer::for_tensor(dtype, rows, cols, {.huge_pages = true});
    tensor::fill_random(buffer.view(dtype, rows, cols), /*seed=*/1);
  }
  return buffer.view(dtype, rows, cols);
}

ConstTensorView Operands::x(Dtype dtype, std::int64_t rows) {
  return place(x_, dtype, kRows.back(), shape_.k).row_range(0, rows);
}

ConstTensorView Operands::weight(Dtype dtype) { return place(weight_, dtype, shape_.n, shape_.k); }

ConstTensorView Operands::gradient(Dtype dtype, std::int64_t rows) {
  return place(gradient_, dtype, kRows.back(), shape_.n).row_range(0, rows);
}

TensorView Operands::out(Dtype dtype, std::int64_t rows) {
  return place(out_, dtype, kRows.back(), shape_.n).row_range(0, rows);
}

TensorView Operands::weight_gradient() {
  return place(weight_gradient_, Dtype::f32, shape_.n, shape_.k);
}

}  // namespace plait::bench
