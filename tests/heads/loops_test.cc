// The exponential and the logarithm: how near they are, and that all sets have the same bits.
#include "heads/loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/fingerprint.h"
#include "problem.h"

namespace plait::heads {
namespace {

std::vector<float> some_logits(std::size_t count, float size) {
  std::mt19937 random(7);
  std::vector<float> values(count);
  for (float& value : values)
    value = (static_cast<float>(random() % 16777216) / 8388608 - 1) * size;
  return values;
}

TEST(Exponential, IsRoundedOnceButForTheEndOfItsSeries) {
  const std::vector<float> x = some_logits(20'001, 80);
  for (const Loops* const set : loop_sets()) {
    if (!base::may_use(set->needs)) continue;
    std::vector<float> y(x.size());
    set->softmax({.shift = 0, .scale = 1, .offset = 0}, x.data(), std::ssize(x), y.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      ASSERT_LE(std::abs(y[i] - exact), (0x1p-24 + 0x1p-31) * exact) << set->name << ' ' << x[i];
    }
  }
}

TEST(Exponential, HasTheseBitsInEverySet) {
  const std::vector<float> x = some_logits(1003, 90);
  for (const Loops* const set : loop_sets()) {
    if (!base::may_use(set->needs)) continue;
    std::vector<std::uint32_t> bits(x.size());
    std::vector<float> y(x.size());
    set->softmax({.shift = 0.3, .scale = 0.7, .offset = -0.1}, x.data(), std::ssize(x), y.data());
    std::memcpy(bits.data(), y.data(), y.size() * sizeof(float));
    EXPECT_EQ(base::fingerprint(bits), 5460235684490576783ULL) << set->name;
    PartSums sums = {.scale = 128, .parts = {}};
    set->add_exponentials(x.data(), 501, sums);
    std::vector<std::uint64_t> parts;
    for (const double part : sums.parts) parts.push_back(std::bit_cast<std::uint64_t>(part));
    parts.push_back(std::bit_cast<std::uint64_t>(set->sum(x.data(), 501)));
    EXPECT_EQ(base::fingerprint(parts), 5858692313389386063ULL) << set->name;
  }
}

TEST(Logarithm, IsWithinTwoUnitsOfTheLastPlace) {
  std::vector<std::uint64_t> bits;
  for (double x = 0x1p-60; x < 0x1p70; x *= 1.0137) {
    const double y = logarithm(x);
    const double exact = std::log(x);
    ASSERT_LE(std::abs(y - exact), 0x1p-52 * std::max(1.0, std::abs(exact))) << x;
    bits.push_back(std::bit_cast<std::uint64_t>(y));
  }
  EXPECT_EQ(base::fingerprint(bits), 14925381699380052359ULL);
  EXPECT_EQ(logarithm(1), 0);
}

TEST(Extent, FindsTheLargestAndNaNs) {
  std::vector<float> x = some_logits(37, 5);
  for (const Loops* const set : loop_sets()) {
    if (!base::may_use(set->needs)) continue;
    for (const std::size_t place : {0UL, 31UL, 36UL}) {
      std::vector<float> some = x;
      some[place] = 6;
      EXPECT_EQ(set->extent(some.data(), 37).largest, 6) << set->name;
      EXPECT_FALSE(set->extent(some.data(), 37).has_nan);
      EXPECT_TRUE(set->reaches(some.data(), 37, 6));
      EXPECT_FALSE(set->reaches(some.data(), 37, 6.5F));
      some[place] = kNotANumber;
      EXPECT_TRUE(set->extent(some.data(), 37).has_nan) << set->name;
      EXPECT_TRUE(set->reaches(some.data(), 37, 6)) << "a NaN is not below";
    }
  }
}

}  // namespace
}  // namespace plait::heads
