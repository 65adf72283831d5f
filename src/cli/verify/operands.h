// The operands of a case: every rank can make those of all ranks, for the reference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/verify/case.h"
#include "plait/buffer.h"
#include "plait/packed_weight.h"
#include "tensor/fill.h"

namespace plait::cli {

// A matrix with something between its rows, and something around it that nobody may write.
class Guarded {
 public:
  Guarded() = default;
  Guarded(Dtype dtype, std::int64_t rows, std::int64_t cols, std::int64_t gap = kGap);

  static constexpr std::int64_t kGap = 3;  // columns behind a row

  const TensorView& view() const { return view_; }
  void poison();           // every byte of it
  bool is_intact() const;  // whether all around the matrix is as poison() left it

 private:
  std::int64_t whole_rows_ = 0;
  std::int64_t whole_cols_ = 0;
  Buffer memory_;
  TensorView view_;
};

// Random numbers that depend on the seed, row and column alone (see tensor/fill.h).
void fill(const TensorView& view, Numbers numbers, std::uint64_t seed, tensor::Origin origin = {});

// Of one rank.
class VerifyOperands {
 public:
  VerifyOperands(const VerifyCase& one, int rank, int world);

  ConstTensorView x() const { return x_.view(); }
  ConstTensorView other_x() const { return other_x_.view(); }
  ConstTensorView bias() const;
  Weight weight() const;
  ConstTensorView plain() const { return weight_.view(); }  // before it was quantised

  // Numbers as they are multiplied, in f64.
  double x_at(std::int64_t row, std::int64_t k) const;
  double weight_at(std::int64_t k, std::int64_t column) const;
  double bias_at(std::int64_t column) const;

 private:
  const VerifyCase& case_;
  Guarded x_;
  Guarded other_x_;
  Guarded weight_;
  Guarded bias_;
  std::optional<QuantizedWeight> quantized_;
  std::optional<PackedWeight> packed_;
};

// Where two matrices differ, bit by bit but for what is not a number in both; empty: nowhere.
std::string difference_in_numbers(const ConstTensorView& got, const ConstTensorView& want);

double element(const ConstTensorView& view, std::int64_t row, std::int64_t col);

}  // namespace plait::cli
