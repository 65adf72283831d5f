// The matrices that all contenders share, each made when it is first used.
#pragma once

#include <map>

#include "plait/buffer.h"
#include "shapes.h"

namespace plait::bench {

class Operands {
 public:
  explicit Operands(const GemmShape& shape) : shape_(shape) {}

  const GemmShape& shape() const { return shape_; }

  ConstTensorView x(Dtype dtype, std::int64_t rows);         // [rows, k]
  ConstTensorView weight(Dtype dtype);                       // [n, k]
  ConstTensorView gradient(Dtype dtype, std::int64_t rows);  // [rows, n], of the output
  TensorView out(Dtype dtype, std::int64_t rows);            // [rows, n]
  TensorView weight_gradient();                              // f32 [n, k]

 private:
  using Place = std::map<Dtype, Buffer>;

  static TensorView place(Place& buffers, Dtype dtype, std::int64_t rows, std::int64_t cols);

  GemmShape shape_;
  Place x_;
  Place weight_;
  Place gradient_;
  Place out_;
  Place weight_gradient_;
};

}  // namespace plait::bench
