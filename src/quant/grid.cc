#include "quant/grid.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace plait::quant {
namespace {

constexpr std::int32_t kMagnitude = 0x7fffffff;
constexpr std::int32_t kInfinity = 0x7f800000;

// Maps -1 to the bits of -0, 0 to those of 0, 1 to those of the smallest denormal. It is its own
// inverse.
std::int32_t ordered(std::int32_t bits) { return bits ^ ((bits >> 31) & kMagnitude); }

float number_of(std::int32_t order) { return std::bit_cast<float>(ordered(order)); }

// Rounds to the nearest f32, but up among denormals. They are so far apart that the nearest might
// be 0, or many steps too small for the largest weight.
float scale_of(double step) {
  const auto scale = static_cast<float>(step);
  const bool too_small = static_cast<double>(scale) < step;
  if (scale < std::numeric_limits<float>::min() && too_small) return std::nextafter(scale, 1.0F);
  return scale;
}

bool overflows(int whole, float scale) { return !std::isfinite(static_cast<float>(whole) * scale); }

}  // namespace

void Range::include(const float* numbers, std::int64_t count) {
  std::int32_t least = least_;
  std::int32_t greatest = greatest_;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t order = ordered(std::bit_cast<std::int32_t>(numbers[i]));
    least = order < least ? order : least;
    greatest = order > greatest ? order : greatest;
  }
  least_ = least;
  greatest_ = greatest;
}

void Range::include(const Range& other) {
  least_ = std::min(least_, other.least_);
  greatest_ = std::max(greatest_, other.greatest_);
}

bool Range::is_finite() const { return greatest_ < kInfinity && least_ > ~kInfinity; }

float Range::least() const { return number_of(least_); }

float Range::greatest() const { return number_of(greatest_); }

Grid Grid::centred(const Range& range, const Format& format) {
  const double largest = std::max(range.greatest(), -range.least());
  float scale = scale_of(largest / format.highest);
  // The largest f32 divided by 127, rounded, times 127 may be infinite.
  if (overflows(format.highest, scale)) scale = std::nextafter(scale, 0.0F);
  return {.scale = scale};
}

// Offsets have the range of values, so with 8 bits the grid can start from -255..0 up to -1..254;
// it always includes 0. The second bound of the scale is for the latter case: only 254 steps remain
// above 0.
Grid Grid::shifted(const Range& range, const Format& format) {
  const double least = range.least();
  const double greatest = range.greatest();
  const int steps = format.steps();
  const float scale = scale_of(std::max((greatest - least) / steps, greatest / (steps - 1)));
  if (scale == 0) return centred(range, format);
  const double nearest = std::nearbyint(least / static_cast<double>(scale));
  const int first = std::clamp(static_cast<int>(nearest), -steps, -1);
  // Near the largest f32 the ends of the grid may be infinite; those of the centred grid never are.
  if (overflows(first, scale) || overflows(first + steps, scale)) return centred(range, format);
  return {.scale = scale, .offset = first - format.lowest};
}

void Grid::round(float* numbers, std::int64_t count, const Format& format) const {
  // Adding this constant leaves no bits for a fraction, for numbers up to 2^22. Here they are at
  // most 256.
  constexpr float kNoFraction = 0x1.8p23F;
  const float divisor = scale == 0 ? 1.0F : scale;
  const auto shift = static_cast<float>(offset);
  const auto low = static_cast<float>(format.lowest);
  const auto high = static_cast<float>(format.highest);
  for (std::int64_t i = 0; i < count; ++i) {
    const float whole = (numbers[i] / divisor + kNoFraction) - kNoFraction;
    const float value = whole - shift;
    const float above = value < low ? low : value;
    numbers[i] = above > high ? high : above;
  }
}

}  // namespace plait::quant
