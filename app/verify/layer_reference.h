// A rank's right results of a layer: sums in f64, and the roundings that results may have had.
#pragma once

#include <cstdint>

#include "tensor/fill.h"
#include "tensor/tolerance.h"
#include "verify/exact.h"
#include "verify/layer_case.h"
#include "verify/layer_operands.h"

namespace plait::verify {

// The case and the operands must exist as long as this.
class LayerReference {
 public:
  LayerReference(const LayerCase& one, const LayerOperands& whole, int world)
      : case_(one), whole_(whole), world_(world) {}

  // Elements of micro-batch i, by their place in this rank's results. `place` is where the element
  // is in the gradient as it is stored.
  Wanted out_at(int i, std::int64_t row, std::int64_t col) const;
  Wanted grad_x_at(int i, std::int64_t row, std::int64_t col) const;
  Wanted grad_weight_at(int i, std::int64_t row, std::int64_t col, tensor::Origin place) const;
  Wanted grad_bias_at(int i, std::int64_t col) const;

  // The values that a gradient has before backward adds to it. They depend on the place of this
  // rank's gradient in that of all ranks.
  void fill_before(const TensorView& gradient, tensor::Origin origin) const;
  tensor::Origin weight_origin() const;
  tensor::Origin bias_origin() const;

 private:
  // The roundings of sums over the dimension that ranks share.
  tensor::Roundings shared(Dtype out) const;

  // Sets what the tolerance needs of an s8 wire. product(col, k): along the dimension shared.
  template <class Product>
  void add_group(tensor::Roundings& way, std::int64_t col, std::int64_t cols,
                 const Product& product) const;

  // The value of a gradient before backward.
  double before(tensor::Origin place) const;

  const LayerCase& case_;
  const LayerOperands& whole_;
  int world_;
};

}  // namespace plait::verify
