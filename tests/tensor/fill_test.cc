#include "tensor/fill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "plait/buffer.h"
#include "tensor/compare.h"
#include "tensor/sentence_of.h"

namespace plait::tensor {
namespace {

Buffer filled(Dtype dtype, std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Buffer buffer = Buffer::for_tensor(dtype, rows, cols);
  fill_random(buffer.view(dtype, rows, cols), seed);
  return buffer;
}

TEST(FillRandom, DependsOnSeedRowAndColumnAlone) {
  const Buffer whole = filled(Dtype::bf16, 40, 30, 7);
  const Buffer wide = Buffer::for_tensor(Dtype::bf16, 10, 100);
  TensorView part = wide.view(Dtype::bf16, 10, 100).column_range(3, 11);
  fill_random(part, 7, {.row = 5, .col = 20});
  const auto same = whole.view(Dtype::bf16, 40, 30).row_range(5, 15).column_range(20, 28);
  EXPECT_TRUE(same_bits(part, same));
}

TEST(FillRandom, WritesNothingBetweenTheRows) {
  const Buffer buffer = Buffer::for_tensor(Dtype::f32, 3, 10);
  const TensorView all = buffer.view(Dtype::f32, 3, 10);
  std::fill_n(reinterpret_cast<float*>(buffer.data()), 30, 5.0F);
  fill_random(all.column_range(2, 6), 1);
  for (std::int64_t row = 0; row < 3; ++row) {
    const auto* values = static_cast<const float*>(all.row(row));
    EXPECT_EQ(std::count(values, values + 10, 5.0F), 6);
  }
}

TEST(FillRandom, OtherSeedsGiveOtherValues) {
  const Buffer one = filled(Dtype::f32, 8, 8, 1);
  const Buffer two = filled(Dtype::f32, 8, 8, 2);
  const auto result = compare(one.view(Dtype::f32, 8, 8), two.view(Dtype::f32, 8, 8),
                              [](auto, auto) { return 0.0; });
  EXPECT_GT(result.differing, 60);
}

TEST(FillRandom, IsUniformFromMinusOneToOne) {
  const Buffer buffer = filled(Dtype::f32, 100, 1000, 3);
  const auto* first = reinterpret_cast<const float*>(buffer.data());
  const auto* last = first + 100000;
  const auto [low, high] = std::minmax_element(first, last);
  EXPECT_GE(*low, -1);
  EXPECT_LT(*low, -0.999);
  EXPECT_LT(*high, 1);
  EXPECT_GT(*high, 0.999);
  // A mean of 10^5 has a standard deviation of 0.0018, a count in a tenth one of 95.
  EXPECT_NEAR(std::accumulate(first, last, 0.0) / 1e5, 0, 0.01);
  const auto tenth = std::count_if(first, last, [](float x) { return x >= 0.2F && x < 0.4F; });
  EXPECT_NEAR(static_cast<double>(tenth), 1e4, 500);
}

TEST(FillRandom, FillsTheWholeRangeOfS8) {
  const Buffer buffer = filled(Dtype::s8, 100, 100, 3);
  const auto* first = reinterpret_cast<const std::int8_t*>(buffer.data());
  const auto [low, high] = std::minmax_element(first, first + 10000);
  EXPECT_EQ(*low, -128);
  EXPECT_EQ(*high, 127);
}

TEST(FillRandom, RoundsTheSameValuesToEveryDtype) {
  const Buffer exact = filled(Dtype::f32, 9, 9, 4);
  const Buffer rounded = filled(Dtype::f16, 9, 9, 4);
  const auto result = compare(rounded.view(Dtype::f16, 9, 9), exact.view(Dtype::f32, 9, 9),
                              [](auto, auto) { return unit_roundoff(Dtype::f16); });
  EXPECT_TRUE(result.ok()) << result.describe();
}

TEST(FillRandom, OfNothingDoesNothingAndBadViewsAreRefused) {
  EXPECT_NO_THROW(fill_random({}, 1));
  EXPECT_EQ(sentence_of([] { fill_random({.dtype = Dtype::f32, .rows = 1, .cols = 2}, 1); }),
            "fill_random: the view is 1 x 2 but its data is null");
}

}  // namespace
}  // namespace plait::tensor
