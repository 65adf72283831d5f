// The loops in the compiler's vector types. Each set compiles them for its own instructions, so all
// names here are local to the source that includes this.
//
// exp(x) = 2^n · p(r), with n = round(x · log2 e), r = x - n · ln 2, and p the first nine terms of
// the series of exp. |r| is at most 0.347, so the terms that are left out are below 2^-32 of the
// sum. n · ln 2 is exact as long as n has 21 bits. For logits of millions r is off by what rounding
// it changes, less than 2^-23.
#pragma once

#include <cstdint>
#include <cstring>

#include "heads/loops.h"

namespace plait::heads {
namespace {

constexpr int kLanes = 8;
using Floats [[gnu::vector_size(kLanes * 4)]] = float;
using Doubles [[gnu::vector_size(kLanes * 8)]] = double;
using Longs [[gnu::vector_size(kLanes * 8)]] = std::int64_t;

constexpr double kLog2E = 0x1.71547652b82fep+0;
constexpr double kLn2High = 0x1.62e42feep-1;  // 32 bits
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// Adding this rounds to a whole number, which is then in the low bits.
constexpr double kWhole = 0x1.8p52;
constexpr std::int64_t kWholeBits = 0x4338000000000000;

#define PLAIT_HERE [[gnu::always_inline]] inline

PLAIT_HERE void load(const float* from, std::int64_t n, Doubles& to) {
  Floats floats;
  if (n >= kLanes) {
    std::memcpy(&floats, from, sizeof floats);
  } else {
    float some[kLanes];
    for (int i = 0; i < kLanes; ++i) some[i] = i < n ? from[i] : -__builtin_inff();
    std::memcpy(&floats, some, sizeof floats);
  }
  to = __builtin_convertvector(floats, Doubles);
}

PLAIT_HERE void clamp(Doubles& x, double low, double high) {
  const Doubles lowest = low - Doubles{};
  const Doubles highest = high - Doubles{};
  x = x < lowest ? lowest : x;
  x = x > highest ? highest : x;
}

// exp(x) · 2^-scale, which must be a normal number.
PLAIT_HERE void exponentials(Doubles& x, std::int64_t scale) {
  const Doubles whole = x * kLog2E + kWhole;
  Longs n;
  std::memcpy(&n, &whole, sizeof n);
  const Doubles exponent = whole - kWhole;
  Doubles r = x - exponent * kLn2High;
  r = r - exponent * kLn2Low;
  Doubles p = r * (1.0 / 40320) + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  Longs bits;
  std::memcpy(&bits, &p, sizeof bits);
  bits += (n - (kWholeBits + scale)) << 52;
  std::memcpy(&x, &bits, sizeof bits);
}

// The lanes of x where the mask is set, and 0 elsewhere.
PLAIT_HERE void add_where(const Longs& mask, const Doubles& x, Doubles& sum) {
  Longs bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits &= mask;
  Doubles kept;
  std::memcpy(&kept, &bits, sizeof bits);
  sum += kept;
}

PLAIT_HERE double across(const Doubles& x) {
  double sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += x[i];
  return sum;
}

Extent extent(const float* x, std::int64_t n) {
  Floats largest = -__builtin_inff() - Floats{};
  using Masks [[gnu::vector_size(kLanes * 4)]] = std::int32_t;
  Masks nans{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Floats some;
    std::memcpy(&some, x + i, sizeof some);
    largest = some > largest ? some : largest;
    nans |= some != some;  // NOLINT(misc-redundant-expression): true for NaNs
  }
  Extent found = {-__builtin_inff(), false};
  for (int lane = 0; lane < kLanes; ++lane) {
    if (largest[lane] > found.largest) found.largest = largest[lane];
    found.has_nan |= nans[lane] != 0;
  }
  for (; i < n; ++i) {
    if (x[i] > found.largest) found.largest = x[i];
    found.has_nan |= x[i] != x[i];
  }
  return found;
}

void add_exponentials(const float* x, std::int64_t n, PartSums& sums) {
  // An exponential below all parts, where 2^-scale still leaves a normal number.
  const double low = (static_cast<double>(sums.scale) - kParts * kExponents) / kLog2E;
  Doubles parts[kParts] = {};
  for (std::int64_t i = 0; i < n; i += kLanes) {
    Doubles one;
    load(x + i, n - i, one);
    clamp(one, low, kMostLogit);
    exponentials(one, sums.scale);
    one = __builtin_convertvector(__builtin_convertvector(one, Floats), Doubles);
    const Longs first = one >= 1.0;
    const Longs second = one >= 0x1p-16;
    const Longs third = one >= 0x1p-32;
    const Longs fourth = one >= 0x1p-48;
    add_where(first, one, parts[0]);
    add_where(second & ~first, one, parts[1]);
    add_where(third & ~second, one, parts[2]);
    add_where(fourth & ~third, one, parts[3]);
  }
  for (int part = 0; part < kParts; ++part) sums.parts[part] += across(parts[part]);
}

double sum(const float* x, std::int64_t n) {
  constexpr double kUnits = kWhole * kInMean;
  double all = 0;
  Doubles lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Doubles some;
    load(x + i, kLanes, some);
    clamp(some, -kMostInMean, kMostInMean);
    lanes += (some + kUnits) - kUnits;
  }
  for (; i < n; ++i) {
    const double high = x[i] > kMostInMean ? kMostInMean : x[i];
    all += ((high < -kMostInMean ? -kMostInMean : high) + kUnits) - kUnits;
  }
  return all + across(lanes);
}

void softmax(const Softmax& how, const float* x, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    Doubles one;
    load(x + i, n - i, one);
    one = one - how.shift;
    clamp(one, -700, 88);
    exponentials(one, 0);
    const Floats some = __builtin_convertvector(one * how.scale + how.offset, Floats);
    const std::int64_t count = n - i < kLanes ? n - i : kLanes;
    std::memcpy(out + i, &some, static_cast<std::size_t>(count) * sizeof(float));
  }
}

bool reaches(const float* x, std::int64_t n, float bound) {
  using Masks [[gnu::vector_size(kLanes * 4)]] = std::int32_t;
  Masks below = ~Masks{};
  const Floats least = bound - Floats{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Floats some;
    std::memcpy(&some, x + i, sizeof some);
    below &= some < least;
  }
  bool all = true;
  for (int lane = 0; lane < kLanes; ++lane) all = all && below[lane] != 0;
  for (; i < n; ++i) all = all && x[i] < bound;
  return !all;
}

#undef PLAIT_HERE

}  // namespace
}  // namespace plait::heads
