// An X that Gemm::pack() has packed.
#pragma once

#include "gemm/rows.h"
#include "plait/buffer.h"
#include "plait/packed_input.h"

namespace plait {

class PackedInput::State {
 public:
  // Only a kernel that can't read X in place leaves anything to be packed.
  void pack(const GemmInput& x, const gemm::Depth& depth, const gemm::TileKernel* kernel,
            int threads);

  // Error{invalid_argument} unless pack() was given this X, for a kernel that reads the same.
  void check(const GemmInput& x, const gemm::Depth& depth, const gemm::TileKernel* kernel) const;

  // nullptr: X is read, or packed, where it is.
  const gemm::Rows* rows() const { return rows_.data == nullptr ? nullptr : &rows_; }

  std::int64_t row_count() const { return x_.rows(); }
  const gemm::Depth& depth() const { return depth_; }
  std::size_t held_bytes() const { return memory_.bytes(); }

 private:
  Buffer memory_;
  gemm::Rows rows_ = {};
  GemmInput x_ = {};  // the input that was packed; never read again
  gemm::Depth depth_;
  gemm::RowsForm form_ = {};
};

}  // namespace plait
