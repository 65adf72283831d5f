#include "ulysses/block_cut.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/sizes.h"

namespace plait::ulysses {
namespace {

const std::vector<ColumnRange> kGroup = {{200, 130}, {10, 1}, {400, 64}};
constexpr std::int64_t kColumns = 195;

// Counts how often each element of the block is in a window, and compares columns with the group.
void expect_once(const std::vector<Window>& windows, std::int64_t rows, const std::string& what) {
  std::vector<std::int64_t> column_of;
  for (const ColumnRange& range : kGroup)
    for (std::int64_t i = 0; i < range.count; ++i) column_of.push_back(range.first + i);
  std::vector<int> seen(static_cast<std::size_t>(rows * kColumns));
  for (const Window& window : windows) {
    const Range in_block = window.columns_in_block();
    ASSERT_GT(plan::length(window.rows), 0) << what;
    ASSERT_GT(plan::length(in_block), 0) << what;
    for (std::int64_t row = window.rows.begin; row < window.rows.end; ++row) {
      for (std::int64_t at = in_block.begin; at < in_block.end; ++at) {
        ++seen[static_cast<std::size_t>(row * kColumns + at)];
        EXPECT_EQ(column_of[static_cast<std::size_t>(at)],
                  window.columns.begin + at - in_block.begin);
      }
    }
  }
  for (const int times : seen) ASSERT_EQ(times, 1) << what;
}

TEST(BlockCut, HasEachElementOnceInAPartAndOnceInAChunk) {
  for (const char* text : {"serial", "pipelined parts=3", "pipelined parts=7 first=10", "fused"}) {
    for (const bool by_columns : {false, true}) {
      for (const std::int64_t rows : {0, 1, 40}) {
        for (const std::int64_t most : {1, 100, 5000}) {
          const std::string what = std::string(text) + " most=" + std::to_string(most);
          const CutRule rule = {.plan = parse_plan(text),
                                .by_columns = by_columns,
                                .width = by_columns ? 64 : 0,
                                .height = 16,
                                .most_elements = most};
          const BlockCut cut(rows, kGroup, rule);
          std::vector<Window> windows;
          std::vector<Window> chunks;
          chunks.reserve(cut.chunks());
          std::uint32_t end = 0;
          for (const BlockCut::Part& part : cut.parts()) {
            windows.insert(windows.end(), part.windows.begin(), part.windows.end());
            EXPECT_LE(end, part.end_chunk);
            end = part.end_chunk;
          }
          EXPECT_EQ(end, cut.chunks());
          for (std::uint32_t i = 0; i < cut.chunks(); ++i) chunks.push_back(cut.chunk(i));
          expect_once(windows, rows, what);
          expect_once(chunks, rows, what);
          if (!by_columns && !cut.parts().empty()) {
            EXPECT_EQ(cut.parts().back().end_row, rows);
          }
        }
      }
    }
  }
}

// A rank multiplies a chunk of them straight into a slot.
TEST(BlockCut, MakesAFusedPartOfColumnsOneChunk) {
  const BlockCut cut(40, kGroup,
                     {.plan = {.schedule = Schedule::fused},
                      .by_columns = true,
                      .width = 64,
                      .height = 16,
                      .most_elements = 7});
  EXPECT_EQ(cut.parts().size(), 3U * 5U);  // 16 + 16 + 8 rows of 64 + 64 + 2, 1 and 64 columns
  ASSERT_EQ(cut.chunks(), cut.parts().size());
  for (std::uint32_t i = 0; i < cut.chunks(); ++i) {
    ASSERT_EQ(cut.parts()[i].windows.size(), 1U);
    EXPECT_EQ(cut.parts()[i].windows[0].rows, cut.chunk(i).rows);
    EXPECT_EQ(cut.parts()[i].windows[0].columns, cut.chunk(i).columns);
    EXPECT_EQ(cut.parts()[i].end_chunk, i + 1);
  }
}

}  // namespace
}  // namespace plait::ulysses
