#include "overlap/cuda/call_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

namespace plait::overlap::cuda {
namespace {

constexpr int kClusters = 66;  // of an H100

int waves(int units, int n, int width, int clusters) {
  return ceil_div(units * ceil_div(n, width), clusters);
}

TEST(TileWidthTest, FillsTheGpuWithFewColumns) {
  // 40 tiles of 256 columns keep 40 of 66 clusters busy, and 64 tiles of 160 keep 64.
  EXPECT_EQ(tile_width(8, 1280, kClusters), 160);
  // Three waves of 224 columns instead of three of 256.
  EXPECT_EQ(tile_width(8, 5376, kClusters), 224);
}

TEST(TileWidthTest, PrefersWideTilesForLargeProducts) {
  EXPECT_EQ(tile_width(64, 14336, kClusters), 256);
  EXPECT_EQ(tile_width(1, 8, kClusters), 160);
  EXPECT_EQ(tile_width(4, 1024, 0), 256);
}

TEST(TileWidthTest, NeverTakesMuchLongerThanTheWidestTile) {
  for (int units = 1; units < 70; ++units) {
    for (int n = 8; n < 9000; n += 104) {
      const int width = tile_width(units, n, kClusters);
      EXPECT_NE(std::find(std::begin(kTileWidths), std::end(kTileWidths), width),
                std::end(kTileWidths));
      EXPECT_LE(waves(units, n, width, kClusters) * width,
                waves(units, n, kTileColumns, kClusters) * (kTileColumns + 8));
    }
  }
}

TEST(CallSizesTest, HasASlotForEverySourceAndTile) {
  const DeviceProblem problem = {.op = DeviceOperator::matmul_all_reduce,
                                 .m = 1000,
                                 .n = 520,
                                 .k = 64,
                                 .element = kBf16,
                                 .layout = Layout::out_in,
                                 .wire = kBf16,
                                 .out = kF32};
  const CallSizes sizes = sizes_of(problem, 4);
  EXPECT_EQ(sizes.tile_columns, 3);
  EXPECT_EQ(sizes.tile_bytes, kTileRows * kTileColumns * 2);
  EXPECT_EQ(sizes.tiles_per_source, 3 * 3);  // 250 rows lie in up to 3 tiles
  const MailboxNeeds needs = needs_of(problem, 4);
  EXPECT_EQ(needs.flags, 4 * 9 * (1 + kMostPieces));
  EXPECT_GE(needs.bytes, 4 * 9 * sizes.tile_bytes + 1000 * sizes.results_stride);
  EXPECT_EQ(mailbox_bytes(needs), bytes_of_flags(needs.flags) + 2 * needs.bytes);
}

}  // namespace
}  // namespace plait::overlap::cuda
