// Blocks of rows that lie apart, and the chunks that they are cut in.
#include "comm/flow/row_block.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace plait::comm {
namespace {

using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;

Pairs runs_of(const RowBlock& block, RowRange range) {
  Pairs runs;
  std::int64_t next = range.begin;
  block.for_each_run(range, [&](RowRange rows, std::int64_t at) {
    EXPECT_EQ(at, next);
    next += rows.count();
    runs.emplace_back(rows.begin, rows.end);
  });
  EXPECT_EQ(next, std::max(range.begin, range.end));
  return runs;
}

TEST(RowBlock, FindsItsRowsInTheirMatrix) {
  RowBlock block;
  block.add(10, 3);
  block.add(13, 2);  // adjacent: one run
  block.add(40, 0);
  block.add(7, 1);
  block.add(20, 4);
  EXPECT_EQ(block.rows(), 10);
  EXPECT_EQ(runs_of(block, {0, 10}), (Pairs{{10, 15}, {7, 8}, {20, 24}}));
  EXPECT_EQ(runs_of(block, {4, 7}), (Pairs{{14, 15}, {7, 8}, {20, 21}}));
  EXPECT_EQ(runs_of(block, {5, 6}), (Pairs{{7, 8}}));
  EXPECT_EQ(runs_of(block, {9, 10}), (Pairs{{23, 24}}));
  EXPECT_EQ(runs_of(block, {3, 3}), Pairs{});
  EXPECT_EQ(runs_of(RowBlock{}, {0, 0}), Pairs{});
}

ConstTensorView rows_of(std::int64_t cols, Dtype dtype) {
  return {.dtype = dtype, .rows = 0, .cols = cols};
}

// A peer may claim any number of rows.
TEST(RowCut, HasFewerChunksThanANumberHasRoomFor) {
  const RowCut cut(rows_of(1024, Dtype::f32), 0, 4096);
  EXPECT_EQ(cut.chunks(std::int64_t{1} << 20), std::uint32_t{1} << 20);
  for (const int bits : {32, 40, 62})
    EXPECT_EQ(cut.chunks(std::int64_t{1} << bits), UINT32_MAX - 1) << bits;
}

// Every element is in one chunk, chunks come in order, and none is larger than a slot.
void expect_to_cut_well(std::int64_t cols, std::int64_t rows, std::int64_t groups) {
  constexpr std::size_t kChunk = 4096;
  const RowCut cut(rows_of(cols, Dtype::f32), groups, kChunk);
  std::int64_t row = 0;
  std::int64_t column = 0;
  const std::uint32_t chunks = cut.chunks(rows);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    EXPECT_LE(cut.bytes(chunk, rows), kChunk);
    const RowPiece piece = cut.piece(chunk, rows);
    if (piece.elements() == 0) {
      EXPECT_EQ(chunk, 0U);
      continue;
    }
    EXPECT_EQ(piece.rows.begin, row);
    EXPECT_EQ(piece.columns.begin, column);
    EXPECT_TRUE(piece.rows.count() == 1 || piece.columns.count() == cols);
    column = piece.columns.end % cols;
    row = column == 0 ? piece.rows.end : row;
  }
  EXPECT_EQ(row, cols == 0 ? 0 : rows);
}

TEST(RowCut, CutsEveryBlockOnce) {
  for (const std::int64_t cols : {0, 1, 25, 1000, 1008, 1009, 1024, 1025, 5000}) {
    for (const std::int64_t rows : {0, 1, 2, 3, 41, 1000}) {
      for (const std::int64_t groups : {1, 9, 512}) {
        SCOPED_TRACE(testing::Message() << cols << " " << rows << " " << groups);
        expect_to_cut_well(cols, rows, groups);
      }
    }
  }
}

TEST(RowCut, PutsFewRowsBehindTheHeader) {
  const RowCut cut(rows_of(100, Dtype::bf16), 8, 4096);
  EXPECT_EQ(cut.header_bytes(), 64U);
  EXPECT_EQ(cut.chunks(20), 1U);  // 64 + 20 * 200 <= 4096
  EXPECT_EQ(cut.bytes(0, 20), 4064U);
  EXPECT_EQ(cut.chunks(21), 2U);
  EXPECT_EQ(cut.bytes(1, 21), 200U);
  EXPECT_EQ(cut.bytes(0, 0), 64U);
}

}  // namespace
}  // namespace plait::comm
