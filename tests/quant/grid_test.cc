#include "quant/grid.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "quant/chance.h"

namespace plait::quant {
namespace {

constexpr float kMost = std::numeric_limits<float>::max();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Range range_of(const std::vector<float>& numbers) {
  Range range;
  range.include(numbers.data(), static_cast<std::int64_t>(numbers.size()));
  return range;
}

std::vector<float> rounded(const Grid& grid, std::vector<float> numbers, const Format& format) {
  grid.round(numbers.data(), static_cast<std::int64_t>(numbers.size()), format);
  return numbers;
}

// Every value must be within the format, and as near to its number as
// docs/concepts/quantised-values.md says.
void expect_near(const std::vector<float>& numbers, const Grid& grid, const Format& format) {
  const Range range = range_of(numbers);
  const double largest = std::max(range.greatest(), -range.least());
  const double allowed = 0.5 * grid.scale + 4 * 0x1p-24 * largest;
  const std::vector<float> values = rounded(grid, numbers, format);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    ASSERT_EQ(values[i], std::nearbyint(values[i]));
    ASSERT_GE(values[i], format.lowest);
    ASSERT_LE(values[i], format.highest);
    const float back = (values[i] + static_cast<float>(grid.offset)) * grid.scale;
    ASSERT_LE(std::abs(static_cast<double>(back) - numbers[i]), allowed)
        << format.name << ": " << numbers[i] << " became " << back << " with scale " << grid.scale
        << " and offset " << grid.offset;
    ASSERT_TRUE(numbers[i] != 0 || back == 0);
  }
}

void expect_good_grids(const std::vector<float>& numbers) {
  const Range range = range_of(numbers);
  for (const Format* format : formats()) {
    const Grid centred = Grid::centred(range, *format);
    const Grid shifted = Grid::shifted(range, *format);
    expect_near(numbers, centred, *format);
    expect_near(numbers, shifted, *format);
    EXPECT_LE(shifted.scale, centred.scale);
    EXPECT_GE(shifted.offset, format->lowest);
    EXPECT_LE(shifted.offset, format->highest);
  }
}

TEST(Range, HoldsZeroAndAllNumbers) {
  EXPECT_EQ(range_of({}).least(), 0);
  EXPECT_EQ(range_of({}).greatest(), 0);
  EXPECT_EQ(range_of({2, 3}).least(), 0);
  EXPECT_EQ(range_of({2, 3}).greatest(), 3);
  EXPECT_EQ(range_of({-2, 3, -kTiny}).least(), -2);
  EXPECT_EQ(range_of({-2, -3}).greatest(), 0);
  EXPECT_EQ(range_of({-0.0F}).least(), 0);
  EXPECT_EQ(range_of({kMost, -kMost, kTiny}).least(), -kMost);
  EXPECT_EQ(range_of({kMost, -kMost, kTiny}).greatest(), kMost);
}

TEST(Range, KnowsWhatIsNotFinite) {
  EXPECT_TRUE(range_of({kMost, -kMost}).is_finite());
  for (const float bad : {kInfinity, -kInfinity, kNan, -kNan}) {
    EXPECT_FALSE(range_of({1, bad, -1}).is_finite()) << bad;
  }
}

TEST(Range, IncludesOthers) {
  Range range = range_of({-1, 2});
  range.include(range_of({-3, 1}));
  EXPECT_EQ(range.least(), -3);
  EXPECT_EQ(range.greatest(), 2);
}

TEST(CentredGrid, TakesTheLargestMagnitudeToTheEnd) {
  EXPECT_EQ(Grid::centred(range_of({1, -254}), kS8).scale, 2);
  EXPECT_EQ(Grid::centred(range_of({3.5F, -1}), kS4).scale, 0.5F);
  const Grid grid = Grid::centred(range_of({-254}), kS8);
  EXPECT_EQ(rounded(grid, {254, -254, 0}, kS8), (std::vector<float>{127, -127, 0}));
}

TEST(CentredGrid, RoundsTiesToEven) {
  const Grid grid = {.scale = 2};
  EXPECT_EQ(rounded(grid, {1, 3, 5, -1, -3, -5, 1.0001F, 2.9999F}, kS8),
            (std::vector<float>{0, 2, 2, -0.0F, -2, -2, 1, 1}));
}

TEST(ShiftedGrid, RoundsTiesToEvenBeforeTheOffset) {
  const Grid grid = {.scale = 2, .offset = 1};
  EXPECT_EQ(rounded(grid, {1, 3, 5, -1}, kS8), (std::vector<float>{-1, 1, 1, -1}));
}

TEST(Grid, Saturates) {
  const Grid grid = {.scale = 1, .offset = 100};
  EXPECT_EQ(rounded(grid, {-29, 300}, kS8), (std::vector<float>{-128, 127}));
  EXPECT_EQ(rounded({.scale = 1}, {-9, 8}, kS4), (std::vector<float>{-8, 7}));
}

TEST(ShiftedGrid, IsWhereTheNumbersAre) {
  const Grid above = Grid::shifted(range_of({0, 254}), kS8);
  EXPECT_EQ(above.scale, 1);
  EXPECT_EQ(above.offset, 127);
  const Grid below = Grid::shifted(range_of({-255, 0}), kS8);
  EXPECT_EQ(below.scale, 1);
  EXPECT_EQ(below.offset, -127);
  const Grid mostly_above = Grid::shifted(range_of({-100, 155}), kS8);
  EXPECT_EQ(mostly_above.scale, 1);
  EXPECT_EQ(mostly_above.offset, 28);  // -128 stands for -100
}

TEST(Grids, OfZerosHaveTheScaleZero) {
  for (const Format* format : formats()) {
    for (const Grid& grid :
         {Grid::centred(Range(), *format), Grid::shifted(range_of({0, -0.0F}), *format)}) {
      EXPECT_EQ(grid.scale, 0);
      EXPECT_EQ(grid.offset, 0);
      EXPECT_EQ(rounded(grid, {0, -0.0F}, *format), (std::vector<float>{0, 0}));
    }
  }
}

TEST(Grids, AreGoodForNumbersOfAllKinds) {
  Chance chance(1);
  for (int round = 0; round < 2000; ++round) {
    const float size = std::ldexp(1.0F, static_cast<int>(chance.below(240)) - 120);
    const float centre = static_cast<float>(chance.below(5)) - 2;
    std::vector<float> numbers(static_cast<std::size_t>(1 + chance.below(40)));
    for (float& number : numbers) number = (chance.number() + centre) * size;
    if (round % 3 == 0) numbers.push_back(0);
    ASSERT_NO_FATAL_FAILURE(expect_good_grids(numbers));
  }
}

TEST(Grids, AreGoodAmongDenormals) {
  for (int units = 1; units < 1200; ++units) {
    const float number = static_cast<float>(units) * kTiny;
    ASSERT_NO_FATAL_FAILURE(expect_good_grids({number, -number / 3, kTiny, 0}));
    ASSERT_NO_FATAL_FAILURE(expect_good_grids({number, number / 2}));
    ASSERT_NO_FATAL_FAILURE(expect_good_grids({-number, -kTiny}));
  }
}

TEST(Grids, AreGoodAtTheLargestNumbers) {
  for (const float other :
       {0.0F, 1.0F, -kMost, -kMost / 3, -kMost / 254, -kMost / 200, kMost / 2}) {
    expect_good_grids({kMost, other});
    expect_good_grids({-kMost, -other});
    expect_good_grids({kMost * 0.999F, other, 3});
  }
}

}  // namespace
}  // namespace plait::quant
