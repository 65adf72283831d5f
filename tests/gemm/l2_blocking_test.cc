#include "gemm/l2_blocking.h"

#include <gtest/gtest.h>

namespace plait::gemm {
namespace {

constexpr Blocking kShape = {.rows = 6, .panels = 2, .k = 256, .few = 4};

// The rows of X take as much in f32, with their sums.
long bytes_of(const Blocking& shape) {
  return shape.rows * (4L * shape.k + 4L * kPanelColumns * shape.panels);
}

TEST(L2Blocking, TakesAsManyWholeMultiplesOfRowsAsFit) {
  const Blocking filled = fill_l2(kShape, Dtype::f32);
  EXPECT_EQ(filled.rows % kShape.rows, 0);
  EXPECT_LE(bytes_of(filled), 2L << 20);   // half of the largest cache that it counts on
  EXPECT_GT(bytes_of(filled), 64L << 10);  // no processor has a second cache of 128 KiB
}

TEST(L2Blocking, ChangesNothingButTheRows) {
  Blocking filled = fill_l2(kShape, Dtype::f32);
  EXPECT_EQ(filled.panels, kShape.panels);
  EXPECT_EQ(filled.k, kShape.k);
  EXPECT_EQ(filled.few, kShape.few);
}

TEST(L2Blocking, TakesMoreRowsOfANarrowerOperand) {
  EXPECT_GT(fill_l2(kShape, Dtype::bf16).rows, fill_l2(kShape, Dtype::f32).rows);
}

TEST(L2Blocking, TakesTheShapeAsItIsWhereNothingMoreFits) {
  const Blocking large = {.rows = 1000, .panels = 2, .k = 1 << 20, .few = 4};
  EXPECT_EQ(fill_l2(large, Dtype::f32).rows, 1000);
}

}  // namespace
}  // namespace plait::gemm
