#include "heads/row_sums.h"

#include <algorithm>

namespace plait::heads {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kLn2 = 0x1.62e42fefa39efp-1;

// The unit of the first part is 2^-23 of its lowest number.
constexpr int kFraction = 23;

double power_of_two(int exponent) {
  double power = 1;
  for (; exponent > 0; --exponent) power *= 2;
  for (; exponent < 0; ++exponent) power /= 2;
  return power;
}

std::int64_t base_of(float largest) {
  const double x = std::clamp(static_cast<double>(largest), -kMostLogit, kMostLogit);
  const std::int64_t exponent = exponent_of(x);
  return (exponent - (exponent < 0 ? kExponents - 1 : 0)) / kExponents;  // -1 → -1, -16 → -1
}

}  // namespace

void RowSums::raise(std::int64_t to) {
  if (to <= base) return;
  const std::int64_t steps = base == RowSums().base ? kParts : to - base;
  for (std::int64_t part = kParts - 1; part >= 0; --part)
    parts[part] = part >= steps ? parts[part - steps] : 0;
  base = to;
}

void RowSums::add(const Loops& by, const float* x, std::int64_t n, bool mean) {
  for (; n > 0; x += kExact, n -= kExact) {
    const std::int64_t count = std::min(n, kExact);
    const Extent found = by.extent(x, count);
    if (found.has_nan) has_nan = 1;
    if (has_nan != 0) return;
    largest = std::max(largest, found.largest);
    if (mean) logits += static_cast<std::int64_t>(by.sum(x, count) / kInMean);
    if (found.largest == -kInfinity) continue;
    raise(base_of(largest));
    PartSums some = {.scale = base * kExponents, .parts = {}};
    by.add_exponentials(x, count, some);
    for (int part = 0; part < kParts; ++part) {
      const double units = power_of_two(part * kExponents + kFraction);
      parts[part] += static_cast<std::int64_t>(some.parts[part] * units);
    }
  }
}

void RowSums::add(const RowSums& other) {
  has_nan |= other.has_nan;
  logits += other.logits;
  target += other.target;
  largest = std::max(largest, other.largest);
  if (has_nan != 0 || other.largest == -kInfinity) return;
  RowSums moved = other;
  moved.raise(base);
  raise(moved.base);
  for (int part = 0; part < kParts; ++part) parts[part] += moved.parts[part];
}

bool RowSums::is_possible() const {
  if (has_nan != 0) return true;
  if (base == RowSums().base) return largest == -kInfinity;
  return base >= base_of(-kInfinity) && base <= base_of(kInfinity);
}

double RowSums::log_sum_exp() const {
  if (has_nan != 0) return std::numeric_limits<double>::quiet_NaN();
  const double most = largest;
  if (most > kMostLogit || most < -kMostLogit) return most;
  double sum = 0;
  for (int part = kParts - 1; part >= 0; --part)
    sum = sum * power_of_two(-kExponents) + static_cast<double>(parts[part]);
  const auto exponent = static_cast<double>(base * kExponents - kFraction);
  return exponent * kLn2 + logarithm(sum);
}

}  // namespace plait::heads
