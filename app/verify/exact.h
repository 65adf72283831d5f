// A sum of products in f64, and a check of a result against it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "plait/quantized.h"
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

// The right value of an element, and the roundings that it may have had.
struct Wanted {
  Exact sum;
  tensor::Roundings roundings;

  std::string what_is_wrong_with(double got) const {
    return sum.what_is_wrong_with(got, roundings);
  }
};

// The roundings of a sum over k by a weight, which may be quantised.
inline std::int64_t terms_of(std::int64_t k, const std::optional<QuantScheme>& scheme) {
  if (!scheme) return k;
  const std::int64_t groups = scheme->per == QuantPer::group ? k / scheme->group + 1 : 1;
  return k + 2 * groups + 2;
}

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
