// How matrices are cut (overlap/cut.h): whatever the sizes, every element once.
#include "overlap/cut.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <vector>

namespace plait::overlap {
namespace {

// How often each element of each rank's rows is in a block.
void expect_everything_once(const Ownership& owners, const Cut& cut) {
  for (std::size_t rank = 0; rank < owners.of_rank.size(); ++rank) {
    const Range mine = owners.of_rank[rank];
    std::vector<int> seen(static_cast<std::size_t>(length(mine) * owners.columns));
    for (std::uint32_t chunk = 0; chunk < cut.chunks(); ++chunk) {
      const Block& block = cut.block(chunk, static_cast<int>(rank));
      const Cut::Part& part = cut.parts()[static_cast<std::size_t>(cut.part_of(chunk))];
      ASSERT_LE(part.first_chunk, chunk);
      ASSERT_LT(chunk, part.end_chunk());
      for (std::int64_t row = block.rows.begin; row < block.rows.end; ++row) {
        ASSERT_GE(row, part.rows()[rank].begin);
        ASSERT_LT(row, part.rows()[rank].end);
        for (std::int64_t column = block.columns.begin; column < block.columns.end; ++column) {
          ASSERT_GE(column, part.columns.begin);
          ASSERT_LT(column, part.columns.end);
          ++seen[static_cast<std::size_t>((row - mine.begin) * owners.columns + column)];
        }
      }
    }
    for (const int times : seen) ASSERT_EQ(times, 1);
  }
}

TEST(Cuts, HaveEveryElementOnce) {
  std::mt19937 random(7);
  const auto below = [&](int end) { return static_cast<std::int64_t>(random() % end); };
  for (int round = 0; round < 300; ++round) {
    const int world = static_cast<int>(1 + below(6));
    const std::int64_t rows = below(3) == 0 ? below(world + 1) : below(40);
    const std::int64_t columns = below(4) == 0 ? below(3) : below(400);
    const Ownership owners = below(4) == 0 ? Ownership::replicated(rows, columns, world)
                                           : Ownership::sharded(rows, columns, world);
    const Plan plan = {.parts = static_cast<int>(1 + below(9)),
                       .first = static_cast<int>(1 + below(200)),
                       .last = static_cast<int>(1 + below(200))};
    const std::int64_t room = 1 + below(900);
    for (const Cut& cut : {Cut::by_rows(owners, plan.parts, plan),
                           Cut::by_columns(owners, plan::ranges_of(columns, plan, 64)),
                           Cut::by_columns(owners, plan::ramped(columns, 1 + below(300)))}) {
      expect_everything_once(owners, cut);
      const Cut fine = cut.in_chunks_of(room);
      expect_everything_once(owners, fine);
      EXPECT_LE(fine.largest_block(), room);
      EXPECT_EQ(fine.parts().size(), cut.parts().size());
      // Even nothing is a chunk: ranks that disagree about it would not notice otherwise.
      EXPECT_GE(cut.chunks(), 1U);
    }
  }
}

// However a plan cuts, columns that share a scale on an s8 wire stay together.
TEST(Cuts, KeepColumnsOfAScaleTogether) {
  std::mt19937 random(9);
  const auto below = [&](int end) { return static_cast<std::int64_t>(random() % end); };
  for (int round = 0; round < 300; ++round) {
    const int world = static_cast<int>(1 + below(4));
    const Ownership owners = Ownership::sharded(below(40), below(900), world);
    const Plan plan = {.parts = static_cast<int>(1 + below(64)),
                       .first = static_cast<int>(1 + below(200)),
                       .last = static_cast<int>(1 + below(200))};
    for (const Cut& cut :
         {Cut::by_rows(owners, plan.parts, plan),
          Cut::by_columns(owners, plan::column_parts(owners.columns, plan, Dtype::s8)),
          Cut::by_columns(owners,
                          plan::column_chunks(owners.columns, 1 + below(999), Dtype::s8))}) {
      for (const Cut& fine : {cut, cut.in_chunks_of(1 + below(900), 64)}) {
        expect_everything_once(owners, fine);
        for (std::uint32_t chunk = 0; chunk < fine.chunks(); ++chunk) {
          const Range columns = fine.block(chunk, 0).columns;
          if (length(columns) == 0) continue;
          EXPECT_EQ(columns.begin % 64, 0);
          EXPECT_TRUE(columns.end % 64 == 0 || columns.end == owners.columns) << columns.end;
        }
      }
    }
  }
}

TEST(Cuts, ShareRowsOutAsShardsAre) {
  const Ownership owners = Ownership::sharded(10, 4, 4);
  const std::vector<Range> want = {{0, 3}, {3, 6}, {6, 8}, {8, 10}};
  EXPECT_EQ(owners.of_rank, want);
}

TEST(Ranges, AreAsLargeAsThePlanSays) {
  const Plan plan = {.parts = 4, .first = 50, .last = 50};
  const std::vector<Range> want = {{0, 167}, {167, 500}, {500, 833}, {833, 1000}};
  const std::vector<Range> got = plan::ranges_of(1000, plan, 1);
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_LE(std::abs(got[i].end - want[i].end), 1);
  for (const Range& range : plan::ranges_of(4096, {.parts = 3, .first = 100}, 64))
    EXPECT_EQ(range.begin % 64, 0);
}

TEST(Ranges, BeginAndEndSmallWhereTheyRamp) {
  const std::vector<Range> ramp = plan::ramped(2048, 256);
  EXPECT_EQ(length(ramp.front()), 64);
  EXPECT_EQ(length(ramp.back()), 64);
  std::int64_t end = 0;
  for (const Range& range : ramp) {
    EXPECT_EQ(range.begin, end);
    EXPECT_LE(length(range), 256);
    end = range.end;
  }
  EXPECT_EQ(end, 2048);
  EXPECT_EQ(plan::ramped(0, 256).size(), 1U);
  EXPECT_EQ(plan::ramped(100, 256).size(), 1U);
}

}  // namespace
}  // namespace plait::overlap
