// The operands of a layer's case. They are those of all ranks together, of which each rank has some
// rows or columns. Every rank can make them all, for the reference.
#pragma once

#include <cstdint>
#include <vector>

#include "plait/gemm.h"
#include "plait/quantized.h"
#include "verify/layer_case.h"
#include "verify/operands.h"

namespace plait::verify {

class LayerOperands {
 public:
  LayerOperands(const LayerCase& one, int rank);

  // The sizes of all ranks together.
  std::int64_t outputs() const { return outputs_; }
  std::int64_t inputs() const { return inputs_; }

  // This rank's ranges.
  Range own_outputs() const { return case_.row ? Range{0, outputs_} : own_; }
  Range own_inputs() const { return case_.row ? own_ : Range{0, inputs_}; }
  Range x_rows() const { return case_.row ? Range{0, case_.m} : own_rows_; }
  Range out_rows() const { return case_.row ? own_rows_ : Range{0, case_.m}; }
  ConstTensorView x(int i) const { return part(x_[i].view(), x_rows(), own_inputs()); }
  ConstTensorView grad_out(int i) const;
  ConstTensorView bias() const;
  WeightView weight() const;  // before it was quantised

  // This rank's part of the quantised weight, with outputs as columns, and of the one by which
  // grad_x is made, with inputs as columns.
  QuantizedWeight quantized() const;
  QuantizedWeight quantized_turned() const;

  // The values that are multiplied, in f64.
  double x_at(int i, std::int64_t row, std::int64_t input) const;
  double grad_out_at(int i, std::int64_t row, std::int64_t output) const;
  double weight_at(std::int64_t output, std::int64_t input) const;
  double turned_weight_at(std::int64_t output, std::int64_t input) const;  // by grad_out
  double bias_at(std::int64_t output) const;

 private:
  static TensorView part(const TensorView& view, Range rows, Range columns);
  Range rows_of(int rank) const;
  Guarded made(Dtype dtype, std::int64_t rows, std::int64_t cols, std::uint64_t which) const;
  double plain_weight_at(std::int64_t output, std::int64_t input) const;

  const LayerCase& case_;
  Range own_;  // of the dimension that ranks share
  Range own_rows_;
  std::int64_t outputs_;
  std::int64_t inputs_;
  Guarded weight_;
  QuantizedWeight quantized_;         // of all ranks together, if the case has a scheme
  QuantizedWeight quantized_turned_;  // likewise
  Guarded bias_;
  std::vector<Guarded> x_;  // by forward
  std::vector<Guarded> grad_out_;
};

}  // namespace plait::verify
