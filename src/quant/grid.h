// Grids of whole numbers to which a part of a weight is rounded, with scale and offset.
//
//   Range range;
//   range.include(weights, count);
//   const Grid grid = Grid::centred(range, format);     // or Grid::shifted: with an offset
//   grid.round(weights, count, format);                 // weights now holds the values, as f32
//
// The thread's rounding mode and denormal flags apply: see DefaultFloats.
#pragma once

#include <cstdint>

#include "quant/format.h"

namespace plait::quant {

// The minimum and the maximum of 0 and some numbers.
class Range {
 public:
  void include(const float* numbers, std::int64_t count);
  void include(const Range& other);

  bool is_finite() const;
  float least() const;
  float greatest() const;

 private:
  // Stored as integers with the order of the numbers: integer maxima vectorise, and NaNs sort
  // beyond the infinities.
  std::int32_t least_ = 0;
  std::int32_t greatest_ = 0;
};

struct Grid {
  float scale = 0;
  int offset = 0;

  // A grid with 0 in the middle: the scale maps the largest magnitude to format.highest.
  static Grid centred(const Range& range, const Format& format);

  // A grid with an offset, which moves the values to the range of the numbers.
  static Grid shifted(const Range& range, const Format& format);

  // Replaces every number by the value for which (value + offset) · scale is nearest. Of two, it
  // takes the one whose value + offset is even.
  void round(float* numbers, std::int64_t count, const Format& format) const;
};

}  // namespace plait::quant
