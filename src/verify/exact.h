// A sum of products in f64, and a check of a result against it.
#pragma once

#include <cmath>
#include <string>

#include "tensor/tolerance.h"

namespace plait::verify {

class Exact {
 public:
  void add(double a, double b) {
    value_ += a * b;
    magnitude_ += std::abs(a * b);
    flushed_ += std::abs(a) + std::abs(b) + 1;
  }

  // Empty: no error. If the sum is a NaN, the result must be a NaN. If values are so large that the
  // result may have overflowed on its way, it is not checked.
  std::string what_is_wrong_with(double got, const tensor::Roundings& way) const;

 private:
  double value_ = 0;
  double magnitude_ = 0;
  // values that kernels may flush to 0, in units of the smallest normal number
  double flushed_ = 0;
};

}  // namespace plait::verify
