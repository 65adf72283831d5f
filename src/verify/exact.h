// A sum of products in f64, and a check of a result against it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "tensor/coded_rows.h"
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

// Roundings::group of a column, for a world that has `cols` of them. magnitude(rank, col) is the
// rank's Σ |a|·|b|. Infinite if one of them is not finite: then all may be NaNs.
template <class Magnitude>
double group_magnitude(std::int64_t col, std::int64_t cols, int world, Magnitude&& magnitude) {
  const std::int64_t begin = col / tensor::kScaleGroup * tensor::kScaleGroup;
  double sum = 0;
  for (int rank = 0; rank < world; ++rank) {
    double largest = 0;
    for (std::int64_t j = begin; j < std::min(cols, begin + tensor::kScaleGroup); ++j) {
      const double one = magnitude(rank, j);
      if (!std::isfinite(one)) return std::numeric_limits<double>::infinity();
      largest = std::max(largest, one);
    }
    sum += largest;
  }
  return sum;
}

}  // namespace plait::verify
