#include "overlap/cuda/work_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

namespace plait::overlap::cuda {
namespace {

constexpr int kRowsOfTile = 128;
constexpr int kRowsOfUnit = 256;

struct Problem {
  int m;
  int world;
  int columns;
  bool spreads;
  int warps;
};

template <class Check>
void for_each_problem(Check&& check) {
  for (const int m : {0, 1, 255, 700, 2048, 4100}) {
    for (const int world : {1, 2, 3, 5, 8}) {
      for (const int columns : {0, 1, 8, 9, 23}) {
        for (const bool spreads : {false, true}) {
          for (const int warps : {0, 1320, 1 << 20}) {
            SCOPED_TRACE("m=" + std::to_string(m) + " world=" + std::to_string(world) +
                         " columns=" + std::to_string(columns) +
                         " spreads=" + std::to_string(spreads));
            check(Problem{m, world, columns, spreads, warps});
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

WorkOrder order_of(const Problem& problem, int rank) {
  const Shards shards = {.m = problem.m, .world = problem.world};
  return work_order(shards, rank, kRowsOfTile,
                    compute_first_order(shards, rank, kRowsOfUnit, problem.columns),
                    {.spreads = problem.spreads, .wire_vectors = 1, .warps = problem.warps});
}

using Piece = std::tuple<int, int, int, int>;  // tile's row and column, slice, part
Piece piece_of(const Work& work) {
  return {work.row_tile, work.column_tile, work.slice, work.part};
}

// In the order of their numbers. Vectors, because sets of so many pieces take minutes with a
// sanitizer.
std::vector<Piece> pieces_of(const WorkOrder& order, int rank) {
  std::vector<Piece> pieces;
  const TileRange& tiles = order.tiles[rank];
  for (int row = tiles.first; row < tiles.first + tiles.count; ++row)
    for (int column = 0; column < order.columns; ++column)
      for (int slice = 0; slice < kSlices; ++slice)
        for (int part = 0; part < order.parts; ++part)
          pieces.emplace_back(row, column, slice, part);
  return pieces;
}

TEST(WorkOrderTest, AddsUpEachOwnPieceAndFetchesEachOtherOnce) {
  for_each_problem([](const Problem& problem) {
    for (int rank = 0; rank < problem.world; ++rank) {
      const WorkOrder order = order_of(problem, rank);
      std::vector<Piece> taken[kMostRanks];
      for (int number = 0;; ++number) {
        const Work work = order.at(number);
        if (work.kind == Work::nothing) break;
        if ((work.kind == Work::sum) != (work.rank == rank)) ADD_FAILURE() << "piece " << number;
        taken[work.rank].push_back(piece_of(work));
      }
      for (int r = 0; r < problem.world; ++r) {
        std::sort(taken[r].begin(), taken[r].end());
        if (r == rank || problem.spreads) {
          EXPECT_EQ(taken[r], pieces_of(order, r)) << "rank " << r;
        } else {
          EXPECT_TRUE(taken[r].empty()) << "rank " << r;
        }
      }
    }
  });
}

// The argument why kernels cannot deadlock needs this order.
TEST(WorkOrderTest, FetchesAGroupOnceTheNextIsAddedUp) {
  for_each_problem([](const Problem& problem) {
    const WorkOrder order = order_of(problem, problem.world - 1);
    const int tiles = order.tiles[problem.world - 1].count;
    int added = 0;     // pieces
    int fetched = -1;  // the last group of which a piece was fetched
    for (int number = 0;; ++number) {
      const Work work = order.at(number);
      if (work.kind == Work::nothing) break;
      const int group = work.column_tile / order.column_group;
      if (work.kind == Work::sum) {
        EXPECT_LE(fetched, std::max(group - 2, -1)) << "piece " << number;
        ++added;
      } else {
        const int columns = std::min((group + 2) * order.column_group, order.columns);
        EXPECT_EQ(added, tiles * columns * order.pieces()) << "piece " << number;
        EXPECT_GE(group, fetched);
        fetched = group;
      }
    }
  });
}

TEST(WorkOrderTest, NothingFollowsTheLastPiece) {
  for_each_problem([](const Problem& problem) {
    const WorkOrder order = order_of(problem, 0);
    int number = 0;
    while (order.at(number).kind != Work::nothing) ++number;
    for (int after = number; after < number + 5000; after += 7)
      EXPECT_EQ(order.at(after).kind, Work::nothing) << number << ", " << after;
  });
}

TEST(WorkOrderTest, HalvesPiecesIfThereAreWarpsEnough) {
  const Problem few = {.m = 2048, .world = 8, .columns = 32, .spreads = false, .warps = 1320};
  EXPECT_EQ(order_of(few, 0).halves, 2);
  EXPECT_EQ(order_of(few, 0).parts, 2 * kMostParts);
  Problem many = few;
  many.m = 8192;
  EXPECT_EQ(order_of(many, 0).halves, 1);
  Problem spreading = few;
  spreading.spreads = true;
  EXPECT_EQ(order_of(spreading, 0).parts, kMostParts);
}

}  // namespace
}  // namespace plait::overlap::cuda
