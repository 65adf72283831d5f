// Random matrices for tests of products.
#pragma once

#include <cstdint>

#include "plait/buffer.h"
#include "plait/tensor_view.h"
#include "tensor/fill.h"

namespace plait {

// A matrix of its own, random, with other numbers between its rows.
struct Matrix {
  Matrix(Dtype dtype, std::int64_t rows, std::int64_t cols, std::uint64_t seed = 0)
      : memory(Buffer::for_tensor(dtype, rows, cols + kGap)),
        view(memory.view(dtype, rows, cols + kGap)) {
    // An element depends on its row and column only, so one call fills the gaps as well.
    tensor::fill_random(view, seed);
    view.cols = cols;
  }

  static constexpr std::int64_t kGap = 3;
  Buffer memory;
  TensorView view;
};

inline double at(const ConstTensorView& view, std::int64_t i, std::int64_t j) {
  float value = 0;
  convert(static_cast<const std::byte*>(view.row(i)) +
              j * static_cast<std::int64_t>(size_of(view.dtype)),
          view.dtype, &value, Dtype::f32, 1);
  return value;
}

}  // namespace plait
