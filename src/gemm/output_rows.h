// The memory that the rows of a product are written to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "plait/gemm.h"

namespace plait::gemm {

// The matrices that a call writes, from its window's first row on.
inline std::span<const TensorView> outs_of(const GemmCall& call) {
  return call.outs.empty() ? std::span(&call.out, 1) : call.outs;
}

// The memory that a tile of a window is written to: all of it in one matrix, or its rows in several
// matrices of `outs`.
class OutputRows {
 public:
  // Rows and columns count from the window's first.
  OutputRows(const GemmCall& call, const Tile& tile) : outs_(outs_of(call)), tile_(tile) {}

  // The next rows, as many as one matrix has; none after the last.
  TensorView next() {
    while (tile_.rows.begin >= outs_.front().rows && outs_.size() > 1) {
      tile_.rows.begin -= outs_.front().rows;
      tile_.rows.end -= outs_.front().rows;
      outs_ = outs_.subspan(1);
    }
    const std::int64_t end = std::min(tile_.rows.end, outs_.front().rows);
    const TensorView rows = outs_.front()
                                .row_range(tile_.rows.begin, end)
                                .column_range(tile_.columns.begin, tile_.columns.end);
    tile_.rows.begin = end;
    return rows;
  }

 private:
  std::span<const TensorView> outs_;
  Tile tile_;
};

}  // namespace plait::gemm
