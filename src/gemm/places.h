// Where the rows of a product go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "plait/gemm.h"

namespace plait::gemm {

// The matrices that a call writes, from its window's first row on.
inline std::span<const TensorView> outs_of(const GemmCall& call) {
  return call.outs.empty() ? std::span(&call.out, 1) : call.outs;
}

// The rows of a window, one after another.
class Places {
 public:
  // Begins with `row` of the window, from `column` of it on.
  Places(const GemmCall& call, std::int64_t row, std::int64_t column)
      : outs_(outs_of(call)), row_(row), column_(column) {
    skip();
  }

  // The next row's place.
  void* next() {
    skip();
    return outs_.front().column_range(column_, column_).row(row_++);
  }

 private:
  void skip() {
    while (row_ >= outs_.front().rows && outs_.size() > 1) {
      row_ -= outs_.front().rows;
      outs_ = outs_.subspan(1);
    }
  }

  std::span<const TensorView> outs_;
  std::int64_t row_;
  std::int64_t column_;
};

}  // namespace plait::gemm
