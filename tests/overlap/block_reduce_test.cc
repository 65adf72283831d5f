// Partial sums on their way to their owners (overlap/block_reduce.h).
#include "overlap/block_reduce.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "conformance/await.h"
#include "conformance/ranks.h"
#include "gemm/matrix.h"
#include "overlap/rank_lanes.h"

namespace plait::overlap {
namespace {

float part_of(int rank, std::int64_t row, std::int64_t column) {
  return static_cast<float>(rank + 1) * value_of(row, column);
}
float whole_of(int world, std::int64_t row, std::int64_t column) {
  return static_cast<float>(world * (world + 1) / 2) * value_of(row, column);
}

struct Rank : RankLanes {
  Rank(Communicator& comm, std::int64_t rows)
      : RankLanes(comm, rows),
        partial(Dtype::f32, rows, kColumns),
        out(Dtype::f32, length(owned), kColumns),
        reduce(lanes.exchange, lanes.cut, Dtype::f32, 1) {
    fill(partial.view, [&](auto row, auto column) { return part_of(comm.rank(), row, column); });
  }

  void begin() { reduce.begin({.out = out.view, .first_row = owned.begin}); }

  void expect_whole(float times = 1) const {
    for (std::int64_t row = 0; row < length(owned); ++row) {
      for (std::int64_t column = 0; column < kColumns; ++column) {
        ASSERT_EQ(at(out.view, row, column),
                  times * whole_of(lanes.comm.world(), owned.begin + row, column))
            << owned.begin + row << ", " << column;
      }
    }
  }

  Matrix partial;
  Matrix out;
  BlockReduce reduce;
};

// Three rows are fewer than five ranks: two ranks own nothing.
TEST(BlockReduce, PutsEachChunkInItsPlace) {
  for (const int world : {1, 2, 3, 5}) {
    for (const std::int64_t rows : {3, 11}) {
      run_as_threads(world, [&](Communicator& comm) {
        Rank rank(comm, rows);
        rank.begin();
        for (std::size_t part = 0; part < rank.lanes.cut.parts().size(); ++part) {
          fall_behind(comm.rank(), part);
          rank.reduce.ready(static_cast<int>(part), rank.lanes.blocks(part, rank.partial.view));
          rank.reduce.step();
        }
        rank.lanes.finish(rank.reduce);
        rank.expect_whole();
      });
    }
  }
}

// Slots and counters of one call are not those of the next, which other ranks may be in already.
TEST(BlockReduce, OfOneCallIsNotThatOfTheNext) {
  run_as_threads(3, [](Communicator& comm) {
    Rank rank(comm, 11);
    for (int call = 1; call <= 5; ++call) {
      if (call > 1) rank.lanes.begin();
      fill(rank.partial.view, [&](auto row, auto column) {
        return static_cast<float>(call) * part_of(comm.rank(), row, column);
      });
      rank.begin();
      EXPECT_EQ(rank.reduce.retired(), 0U);
      for (std::size_t part = 0; part < rank.lanes.cut.parts().size(); ++part)
        rank.reduce.ready(static_cast<int>(part), rank.lanes.blocks(part, rank.partial.view));
      rank.lanes.finish(rank.reduce);
      rank.expect_whole(static_cast<float>(call));
    }
  });
}

// All parts are made in one place, each where the one before is past.
TEST(BlockReduce, ReadsBlocksUntilTheyAreRetired) {
  run_as_threads(3, [](Communicator& comm) {
    Rank rank(comm, 11);
    const Matrix place(Dtype::f32, 11, 7);
    rank.begin();
    for (std::size_t part = 0; part < rank.lanes.cut.parts().size(); ++part) {
      const Cut::Part& made = rank.lanes.cut.parts()[part];
      fall_behind(comm.rank(), part);
      rank.lanes.step_until(rank.reduce, [&] { return rank.reduce.retired() == made.first_chunk; });
      fill(place.view, [&](auto row, auto column) {
        return part_of(comm.rank(), row, made.columns.begin + column);
      });
      std::vector<ConstTensorView> blocks;
      for (const Range& rows : made.rows()) {
        blocks.push_back(
            place.view.row_range(rows.begin, rows.end).column_range(0, length(made.columns)));
      }
      rank.reduce.ready(static_cast<int>(part), blocks);
    }
    rank.lanes.finish(rank.reduce);
    rank.expect_whole();
  });
}

TEST(BlockReduce, MayGetBlocksStraightInSlots) {
  run_as_threads(3, [](Communicator& comm) {
    Rank rank(comm, 11);
    rank.begin();
    for (std::size_t part = 0; part < rank.lanes.cut.parts().size(); ++part) {
      fall_behind(comm.rank(), part);
      rank.lanes.step_until(rank.reduce, [&] { return rank.reduce.has_room(); });
      const auto blocks = rank.lanes.blocks(part, rank.partial.view);
      for (const int peer : rank.lanes.exchange.peers()) {
        const TensorView slot = rank.reduce.slot(peer);
        const ConstTensorView& from = blocks[static_cast<std::size_t>(peer)];
        for (std::int64_t row = 0; row < slot.rows; ++row)
          std::memcpy(slot.row(row), from.row(row), slot.row_bytes());
      }
      rank.reduce.posted(blocks[static_cast<std::size_t>(comm.rank())]);
    }
    rank.lanes.finish(rank.reduce);
    rank.expect_whole();
  });
}

// (1e8 + 1) + (-1e8 + 1) is 0 in f32; in the order of the ranks, the sum would be 1.
TEST(BlockReduce, IsATreeWhicheverRankComesFirst) {
  for (const int late : {0, 1, 2, 3}) {
    run_as_threads(4, [&](Communicator& comm) {
      Rank rank(comm, 4);
      const float part = comm.rank() % 2 == 1 ? 1 : comm.rank() == 0 ? 1e8F : -1e8F;
      fill(rank.partial.view, [&](auto, auto) { return part; });
      rank.begin();
      if (comm.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      for (std::size_t i = 0; i < rank.lanes.cut.parts().size(); ++i)
        rank.reduce.ready(static_cast<int>(i), rank.lanes.blocks(i, rank.partial.view));
      rank.lanes.finish(rank.reduce);
      for (std::int64_t column = 0; column < kColumns; ++column)
        ASSERT_EQ(at(rank.out.view, 0, column), 0);
    });
  }
}

// A sum with a bias is made in pieces of columns.
TEST(BlockReduce, AddsABiasOnce) {
  constexpr std::int64_t kWide = 2500;
  run_as_threads(3, [](Communicator& comm) {
    const Ownership owners = Ownership::sharded(3, kWide, comm.world());
    Lanes lanes(comm, Cut::by_columns(owners, {{0, 1100}, {1100, kWide}}));
    const Matrix partial(Dtype::f32, 3, kWide);
    fill(partial.view, [&](auto, auto) { return static_cast<float>(comm.rank()); });
    const Matrix bias(Dtype::f32, 1, kWide);
    fill(bias.view, [](auto, auto column) { return static_cast<float>(column); });
    const Matrix out(Dtype::f32, 1, kWide);
    BlockReduce reduce(lanes.exchange, lanes.cut, Dtype::f32, 2);
    reduce.begin({.out = out.view,
                  .first_row = comm.rank(),
                  .bias = static_cast<const float*>(bias.view.row(0))});
    reduce.ready(0, lanes.blocks(0, partial.view));
    reduce.ready(1, lanes.blocks(1, partial.view));
    lanes.finish(reduce);
    for (std::int64_t column = 0; column < kWide; ++column)
      ASSERT_EQ(at(out.view, 0, column), static_cast<double>(3 + column));
  });
}

// Rank 2 has its own part and rank 0's: it waits for rank 1.
TEST(BlockReduce, WaitsForTheRankWhoseChunkIsMissing) {
  std::atomic<bool> seen = false;
  run_as_threads(3, [&](Communicator& comm) {
    Rank rank(comm, 6);
    rank.begin();
    if (comm.rank() == 1 && !await("rank 2 sees what it waits for", [&] { return seen.load(); }))
      return;
    for (std::size_t part = 0; part < rank.lanes.cut.parts().size(); ++part)
      rank.reduce.ready(static_cast<int>(part), rank.lanes.blocks(part, rank.partial.view));
    rank.reduce.step();
    if (comm.rank() == 2) {
      EXPECT_TRUE(await("rank 0's chunk arrives",
                        [&] { return rank.lanes.exchange.arrived(Way::out, 0); }));
      const comm::Awaited awaited = rank.reduce.awaited();
      EXPECT_EQ(awaited.peer, 1);
      EXPECT_EQ(awaited.tag.chunk, 0U);
      EXPECT_FALSE(awaited.room);
      EXPECT_EQ(rank.reduce.summed(), 0U);
      seen = true;
    }
    rank.lanes.finish(rank.reduce);
    EXPECT_EQ(rank.reduce.awaited().peer, Error::kNoRank);
    rank.expect_whole();
  });
}

}  // namespace
}  // namespace plait::overlap
