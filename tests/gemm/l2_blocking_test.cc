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

// The shape of the vector kernel in f32.
constexpr Blocking kVector = {.rows = 96, .panels = 2, .k = 256, .few = 4};

TEST(L2Blocking, HalvesKWhereTheCacheIsSmallToReadTheWeightHalfAsOften) {
  const Blocking filled = fill_l2(kVector, Dtype::f32, 512L << 10);
  EXPECT_EQ(filled.rows, 192);
  EXPECT_EQ(filled.k, 128);
  EXPECT_TRUE(filled.spreads_rows);
  EXPECT_EQ(filled.panels, kVector.panels);
}

TEST(L2Blocking, KeepsRowsSumsAndTwoBlocksOfPanelsWithinTheCache) {
  for (const long cache : {512L << 10, 1L << 20, 1280L << 10, 2L << 20, 4L << 20}) {
    SCOPED_TRACE(cache);
    const Blocking filled = fill_l2(kVector, Dtype::f32, cache);
    const long panels = 2L * 4 * filled.k * kPanelColumns;  // in use, and the next
    EXPECT_LE(bytes_of(filled) + panels, cache * 3 / 4);
  }
}

TEST(L2Blocking, KeepsKWhereTheCacheIsLarge) {
  EXPECT_EQ(fill_l2(kVector, Dtype::f32, 1L << 20).k, 256);
  EXPECT_FALSE(fill_l2(kVector, Dtype::f32, 1L << 20).spreads_rows);
  EXPECT_EQ(fill_l2(kVector, Dtype::f32, 1L << 20).rows, 288);
  EXPECT_EQ(fill_l2(kVector, Dtype::f32, 1280L << 10).rows, 384);
}

// Half of k would change nothing but how often sums are read and written.
TEST(L2Blocking, KeepsKWhereHalfOfItMakesNoRoom) {
  const Blocking filled = fill_l2(kVector, Dtype::f32, 128L << 10);
  EXPECT_EQ(filled.k, 256);
  EXPECT_EQ(filled.rows, 96);
}

}  // namespace
}  // namespace plait::gemm
