// The operands of a case. Every rank can make those of all ranks, for the reference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plait/buffer.h"
#include "plait/gemm.h"
#include "plait/packed_weight.h"
#include "tensor/fill.h"
#include "verify/case.h"

namespace plait::verify {

// The seed of an operand is that of its problem, and one of these; 0 is another rank's x.
inline constexpr std::uint64_t kSeedOfX = 1;
inline constexpr std::uint64_t kSeedOfWeight = 2;
inline constexpr std::uint64_t kSeedOfBias = 3;

// A matrix with gaps between its rows and memory around it, none of which may be written.
class Guarded {
 public:
  Guarded() = default;
  Guarded(Dtype dtype, std::int64_t rows, std::int64_t cols, std::int64_t gap = kGap);

  static constexpr std::int64_t kGap = 3;  // columns after a row

  const TensorView& view() const { return view_; }
  void poison();           // fills all bytes
  bool is_intact() const;  // true if the bytes around the matrix are as poison() left them

 private:
  std::int64_t whole_rows_ = 0;
  std::int64_t whole_cols_ = 0;
  Buffer memory_;
  TensorView view_;
};

// Writes random numbers that depend only on the seed, row and column (see tensor/fill.h).
void fill(const TensorView& view, Numbers numbers, std::uint64_t seed, tensor::Origin origin = {});

// Some columns and k of a quantised weight. They begin and end between groups and between bytes, or
// where the weight does.
QuantizedWeight part_of(const QuantizedWeight& whole, Range columns, Range k);

// The weights of all ranks, which have equal shares of k, as the weight of one rank that has all k,
// before it is quantised.
Guarded joined_weight(const VerifyCase& one);

// The operands of one rank.
class VerifyOperands {
 public:
  VerifyOperands(const VerifyCase& one, int rank, int world);

  ConstTensorView x() const { return x_.view(); }
  ConstTensorView other_x() const { return other_x_.view(); }
  ConstTensorView bias() const;
  Weight weight() const;
  ConstTensorView plain() const { return weight_.view(); }  // before it was quantised

  // The values that are multiplied, in f64.
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

double element(const ConstTensorView& view, std::int64_t row, std::int64_t col);
double element(const WeightView& weight, std::int64_t k, std::int64_t column);
double element(const QuantizedWeight& weight, std::int64_t k, std::int64_t column);

}  // namespace plait::verify
