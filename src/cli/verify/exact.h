// A sum of products in f64, and whether a result is as near to it as it must be.
#pragma once

#include <cmath>
#include <string>

#include "tensor/tolerance.h"

namespace plait::cli {

class Exact {
 public:
  void add(double a, double b) {
    value_ += a * b;
    magnitude_ += std::abs(a * b);
    flushed_ += std::abs(a) + std::abs(b) + 1;
  }

  // Empty: nothing is. What is not a number must not be one in the result; where numbers are so
  // large that the result may have overflowed on its way, nothing is known of it.
  std::string what_is_wrong_with(double got, const tensor::Roundings& way) const;

 private:
  double value_ = 0;
  double magnitude_ = 0;
  double flushed_ = 0;  // what kernels may take for 0, in units of the smallest normal number
};

}  // namespace plait::cli
