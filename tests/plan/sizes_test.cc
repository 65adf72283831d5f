// The chunk sizes of plans that don't set them.
#include "plan/sizes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace plait::plan {
namespace {

std::int64_t chunk(std::int64_t m, std::int64_t n, bool linked, int world = 2) {
  return suitable_chunk({.m = m, .n = n, .dtype = Dtype::f32}, world, linked);
}

TEST(Sizes, AChunkInMemoryIsAsWideAsTheProductLikesIt) {
  EXPECT_EQ(chunk(2048, 16384, false), 256);
  EXPECT_EQ(chunk(2048, 2048, false), 256);  // eight chunks
  EXPECT_EQ(chunk(2048, 1024, false), 128);  // eight chunks of fewer columns
}

TEST(Sizes, AChunkOverALinkIsNarrow) {
  EXPECT_EQ(chunk(2048, 2048, true), 64);
  EXPECT_EQ(chunk(2048, 4096, true), 128);  // pairs of panels, since there are enough
  EXPECT_EQ(chunk(2048, 8192, true), 128);
  EXPECT_EQ(chunk(2048, 16384, true), 256);  // one of 64 chunks
}

TEST(Sizes, FewRowsMakeWideChunksButFourOfThem) {
  for (const bool linked : {false, true}) {
    EXPECT_EQ(chunk(128, 8192, linked), 512) << linked;
    EXPECT_EQ(chunk(16, 8192, linked), 2048) << linked;
    EXPECT_EQ(chunk(1, 8192, linked), 8192) << linked;  // too few bytes for two chunks
    EXPECT_EQ(chunk(2048, 64, linked), 64) << linked;
    EXPECT_EQ(chunk(0, 4096, linked), 4096) << linked;
  }
}

TEST(Sizes, ManyRanksMakeWideChunksOfBlocksThatAreNotTooSmall) {
  EXPECT_EQ(chunk(2048, 8192, true, 8), 128);
  EXPECT_EQ(chunk(8192, 8192, true, 64), 128);  // 128 rows for each peer
  EXPECT_EQ(chunk(8192, 8192, true, 256), 512);
  EXPECT_EQ(chunk(8192, 8192, true, 1024), 2048);
  EXPECT_EQ(chunk(8192, 8192, true, 4096), 2048);  // at least four chunks in any world
}

TEST(Sizes, FewSumsAreCopiedAtOnce) {
  const auto copied = [](std::int64_t m, std::int64_t n, Dtype wire) {
    return are_copied_at_once({.m = m, .n = n, .dtype = wire});
  };
  EXPECT_TRUE(copied(16, 4096, Dtype::f32));
  EXPECT_FALSE(copied(17, 4096, Dtype::f32));
  EXPECT_TRUE(copied(17, 4096, Dtype::bf16));
  EXPECT_FALSE(copied(2048, 4096, Dtype::bf16));
}

TEST(Sizes, OneStepIsForFewSumsOfFewRanks) {
  const auto one_step = [](std::int64_t m, std::int64_t n, int world) {
    return is_one_step({.m = m, .n = n, .dtype = Dtype::f32}, world);
  };
  EXPECT_FALSE(one_step(1, 64, 1));
  EXPECT_TRUE(one_step(16, 4096, 2));
  EXPECT_FALSE(one_step(17, 4096, 2));
  EXPECT_TRUE(one_step(9, 1024, 8));
  EXPECT_FALSE(one_step(16, 4096, 8));
  // Only bytes decide, even if some ranks have no row to sum.
  EXPECT_TRUE(one_step(1, 8192, 8));
  EXPECT_FALSE(one_step(7, 8192, 8));
  EXPECT_FALSE(one_step(1, 1 << 20, 8));
}

TEST(Sizes, FewRowsAreGatheredBeforeAWeightIsReadForThem) {
  for (const bool linked : {false, true}) {
    EXPECT_TRUE(gathers_all_first({.m = 63, .n = 4096}, 2, linked)) << linked;
    EXPECT_FALSE(gathers_all_first({.m = 512, .n = 4096}, 2, linked)) << linked;
    EXPECT_FALSE(gathers_all_first({.m = 64, .n = 64}, 2, linked)) << linked;  // a small weight
    EXPECT_TRUE(gathers_all_first({.m = 0, .n = 0}, 2, linked)) << linked;
  }
  // Over a link the rows come too late; in memory a few more rows are worth waiting for.
  EXPECT_FALSE(gathers_all_first({.m = 64, .n = 4096}, 2, true));
  EXPECT_TRUE(gathers_all_first({.m = 128, .n = 4096}, 2, false));
  EXPECT_TRUE(gathers_all_first({.m = 511, .n = 4096}, 2, false));
  EXPECT_TRUE(gathers_all_first({.m = 512, .n = 4096}, 8, false));
  EXPECT_FALSE(gathers_all_first({.m = 512, .n = 3520}, 8, false));  // many rows for so few columns
}

// With fewer rows some blocks are larger, but none may exceed the size said for more rows.
TEST(Sizes, NoBlockOfFewerRowsIsLarger) {
  for (const int world : {1, 2, 3, 8, 40}) {
    for (const std::int64_t n : {0, 3, 64, 300, 1000, 4096, 20000}) {
      for (const bool linked : {false, true}) {
        std::int64_t largest = 0;
        for (std::int64_t m = 0; m <= 3000; ++m) {
          const PartialSums sums = {.m = m, .n = n, .dtype = Dtype::f32};
          for (const Range& columns : ramped(n, suitable_chunk(sums, world, linked)))
            largest = std::max(largest, (m + world - 1) / world * length(columns));
          ASSERT_LE(largest, largest_suitable_block(sums, world, linked))
              << m << " rows of " << n << " for " << world << (linked ? ", linked" : "");
          if (m > 100) m += 6;
        }
      }
    }
  }
}

TEST(Sizes, TheMostOfOneStepAreOneStep) {
  for (const int world : {2, 3, 9}) {
    const std::int64_t most = most_in_one_step(Dtype::bf16, world);
    EXPECT_TRUE(is_one_step({.m = 1, .n = most, .dtype = Dtype::bf16}, world));
    EXPECT_FALSE(is_one_step({.m = 1, .n = most + 1, .dtype = Dtype::bf16}, world));
  }
  EXPECT_EQ(most_in_one_step(Dtype::f32, 1), 0);
  EXPECT_FALSE(is_one_step({.m = 1, .n = most_in_one_step(Dtype::s8, 2), .dtype = Dtype::s8}, 2));
}

TEST(Sizes, CountTheScalesOfAnS8Wire) {
  EXPECT_EQ(wire_bytes(Dtype::bf16, 3, 65), 390);
  EXPECT_EQ(wire_bytes(Dtype::s8, 3, 65), 3 * (65 + 4));
  EXPECT_EQ((PartialSums{.m = 3, .n = 65, .dtype = Dtype::s8}.bytes()), 3 * (65 + 4));
  EXPECT_EQ(wire_bytes_per_element(Dtype::f32), 4);
  EXPECT_EQ(wire_bytes_per_element(Dtype::s8), 1 + 2.0 / 64);
  for (std::int64_t rows = 0; rows < 70; ++rows) {
    for (std::int64_t columns = 0; columns < 200; ++columns) {
      EXPECT_LE(wire_bytes(Dtype::s8, rows, columns),
                most_wire_bytes(Dtype::s8, rows * columns, rows));
    }
  }
}

}  // namespace
}  // namespace plait::plan
