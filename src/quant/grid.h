// The whole numbers that a part of a weight is rounded to: which scale, which offset.
//
//   Range range;
//   range.include(weights, count);
//   const Grid grid = Grid::centred(range, format);     // or Grid::shifted: with an offset
//   grid.round(weights, count, format);                         // now the values, as f32
//
// All of it computes with the thread's rounding mode and denormal flags: see DefaultFloats.
#pragma once

#include <cstdint>

#include "quant/format.h"

namespace plait::quant {

// The least and the greatest of some numbers and 0.
class Range {
 public:
  void include(const float* numbers, std::int64_t count);
  void include(const Range& other);

  bool is_finite() const;
  float least() const;
  float greatest() const;

 private:
  // As whole numbers that are ordered as the numbers are: integers have a maximum that vectorises,
  // and NaNs come to lie beyond the infinities.
  std::int32_t least_ = 0;
  std::int32_t greatest_ = 0;
};

struct Grid {
  float scale = 0;
  int offset = 0;

  // 0 in the middle: the scale takes the largest magnitude to format.highest.
  static Grid centred(const Range& range, const Format& format);

  // The offset moves the values' range to where the numbers are.
  static Grid shifted(const Range& range, const Format& format);

  // Every number to the value whose (value + offset) · scale is nearest; of two, that whose
  // value + offset is even.
  void round(float* numbers, std::int64_t count, const Format& format) const;
};

}  // namespace plait::quant
