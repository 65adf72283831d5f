#include "tensor/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "tensor/sentence_of.h"

namespace plait::tensor {
namespace {

// kernels_test.cc tests the loops themselves, for every set.

float sum_of(const std::vector<float>& values) {
  std::vector<const void*> sources;
  sources.reserve(values.size());
  for (const float& value : values) sources.push_back(&value);
  float out = 0;
  sum_as_tree(&out, Dtype::f32, sources.data(), static_cast<int>(sources.size()), Dtype::f32, 1);
  return out;
}

TEST(SumInOrder, KeepsTheOrderOfItsSources) {
  EXPECT_EQ(sum_of({1e8F, 1, -1e8F}), 0);
  EXPECT_EQ(sum_of({1e8F, -1e8F, 1}), 1);
}

TEST(SumInOrder, AddsNeighboursInPairs) {
  EXPECT_EQ(sum_of({1e8F, 1, -1e8F, 1}), 0) << "1 is lost beside 1e8 on both sides";
  EXPECT_EQ(sum_of({1e8F, -1e8F, 1, 1}), 2);
  EXPECT_EQ(sum_of({1e8F, 1, -1e8F, 1, 3}), 3) << "the fifth is added last";
}

TEST(SumInOrder, StartsFromTheFirstSourceAndNotFromZero) {
  EXPECT_TRUE(std::signbit(sum_of({-0.0F, -0.0F})));
}

TEST(StreamedSumInOrder, IsTheSameSumTwice) {
  const std::array<Bf16, 3> halves = {Bf16(256), Bf16(1), Bf16(2)};
  std::array<Bf16, 3> kept = halves;
  const void* half_sources[] = {halves.data(), kept.data()};
  std::array<Bf16, 3> out = {};
  streamed_sum_as_tree({.out = out.data(), .kept = kept.data()}, Dtype::bf16, half_sources, 2, 3);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(static_cast<float>(out[i]), 2 * static_cast<float>(halves[i]));
    EXPECT_EQ(static_cast<float>(kept[i]), static_cast<float>(out[i]));
  }
  std::vector<float> whole(100, 0.5F);
  std::vector<float> sums(whole.size());
  const void* sources[] = {whole.data(), whole.data(), whole.data()};
  streamed_sum_as_tree({.out = sums.data(), .kept = whole.data()}, Dtype::f32, sources, 3, 100);
  EXPECT_EQ(sums, std::vector<float>(100, 1.5F));
  EXPECT_EQ(whole, sums);
}

TEST(SumInOrder, RoundsOnceAtTheEnd) {
  // 256 + 1 is 256 in bf16; 256 + 1 + 1 is 258 if only the sum is rounded.
  const std::array<Bf16, 2> values = {Bf16(256), Bf16(1)};
  const void* sources[] = {values.data(), values.data() + 1, values.data() + 1};
  Bf16 out;
  sum_as_tree(&out, Dtype::bf16, sources, 3, Dtype::bf16, 1);
  EXPECT_EQ(static_cast<float>(out), 258);
}

TEST(SumInOrder, AccumulatesBesideItsInput) {
  std::vector<float> total(777, 1);
  const std::vector<float> more(777, 2);
  const void* sources[] = {total.data(), more.data()};
  sum_as_tree(total.data(), Dtype::f32, sources, 2, Dtype::f32, total.size());
  EXPECT_EQ(total, std::vector<float>(777, 3));
}

TEST(SumInOrder, RefusesToAddNothing) {
  float out = 0;
  EXPECT_EQ(sentence_of([&] { sum_as_tree(&out, Dtype::f32, nullptr, 0, Dtype::f32, 1); }),
            "sum_as_tree: needs at least one source, not 0");
}

TEST(SumInOrder, OfNoElementsTouchesNothing) {
  const void* sources[] = {nullptr, nullptr};
  EXPECT_NO_THROW(sum_as_tree(nullptr, Dtype::f32, sources, 2, Dtype::f32, 0));
}

}  // namespace
}  // namespace plait::tensor
