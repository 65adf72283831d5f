// Blocks on their way from their owners to all ranks (overlap/block_gather.h), also right behind
// the sums that they are (overlap/operator_flows.h).
#include "overlap/block_gather.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "conformance/ranks.h"
#include "gemm/matrix.h"
#include "overlap/operator_flows.h"
#include "overlap/rank_lanes.h"

namespace plait::overlap {
namespace {

struct Rank : RankLanes {
  Rank(Communicator& comm, std::int64_t rows)
      : RankLanes(comm, rows),
        own(Dtype::f32, length(owned), kColumns),
        all(Dtype::f32, rows, kColumns),
        gather(lanes.exchange, lanes.cut, Way::out) {}

  // Values are `times` those of the first call. This rank's own rows of the whole are not the
  // flow's to write.
  void begin(float times = 1) {
    fill(own.view,
         [&](auto row, auto column) { return times * value_of(owned.begin + row, column); });
    fill(all.view, [](auto, auto) { return std::numeric_limits<float>::quiet_NaN(); });
    gather.begin({.own = own.view, .first_row = owned.begin, .all = all.view});
  }

  void expect_others_rows(std::int64_t columns = kColumns, float times = 1) const {
    for (std::int64_t row = 0; row < all.view.rows; ++row) {
      const bool mine = owned.begin <= row && row < owned.end;
      for (std::int64_t column = 0; column < kColumns; ++column) {
        const double got = at(all.view, row, column);
        if (mine || column >= columns) {
          ASSERT_TRUE(std::isnan(got)) << row << ", " << column;
        } else {
          ASSERT_EQ(got, times * value_of(row, column)) << row << ", " << column;
        }
      }
    }
  }

  Matrix own;
  Matrix all;
  BlockGather gather;
};

// Three rows are fewer than five ranks: two ranks own nothing.
TEST(BlockGather, BringsEveryRankTheOthersRows) {
  for (const int world : {1, 2, 3, 5}) {
    for (const std::int64_t rows : {3, 11}) {
      run_as_threads(world, [&](Communicator& comm) {
        Rank rank(comm, rows);
        rank.begin();
        for (std::uint32_t made = 1; made <= rank.lanes.cut.chunks(); ++made) {
          fall_behind(comm.rank(), made);
          rank.gather.ready(made);
          rank.gather.step();
        }
        rank.lanes.finish(rank.gather);
        rank.expect_others_rows();
        EXPECT_EQ(rank.gather.awaited().peer, Error::kNoRank);
      });
    }
  }
}

TEST(BlockGather, OfOneCallIsNotThatOfTheNext) {
  run_as_threads(3, [](Communicator& comm) {
    Rank rank(comm, 11);
    for (int call = 1; call <= 5; ++call) {
      if (call > 1) rank.lanes.begin();
      rank.begin(static_cast<float>(call));
      EXPECT_EQ(rank.gather.received(), 0U);
      rank.gather.ready(rank.lanes.cut.chunks());
      rank.lanes.finish(rank.gather);
      rank.expect_others_rows(kColumns, static_cast<float>(call));
    }
  });
}

// A chunk that is not made yet is not sent, although there is room for it.
TEST(BlockGather, SendsOnlyWhatIsReady) {
  std::barrier all_are_here(3);
  run_as_threads(3, [&](Communicator& comm) {
    Rank rank(comm, 11);
    rank.begin();
    rank.gather.ready(3);
    rank.lanes.step_until(rank.gather,
                          [&] { return rank.gather.received() >= 3 && rank.gather.sent() >= 3; });
    for (int again = 0; again < 100; ++again) rank.gather.step();
    EXPECT_EQ(rank.gather.sent(), 3U);
    EXPECT_FALSE(rank.gather.done());
    rank.expect_others_rows(3 * 7);
    all_are_here.arrive_and_wait();
    rank.gather.ready(rank.lanes.cut.chunks());
    rank.lanes.finish(rank.gather);
    rank.expect_others_rows();
  });
}

// All-reduce: owners pass a chunk on when it is summed. Ranks are at different chunks meanwhile.
TEST(OperatorFlows, GatherWhatIsSummed) {
  constexpr std::int64_t kRows = 11;
  for (const int world : {1, 2, 3, 5}) {
    run_as_threads(world, [&](Communicator& comm) {
      Lanes lanes(comm, narrow_parts(kRows, kColumns, world), 2);
      const Matrix partial(Dtype::f32, kRows, kColumns);
      fill(partial.view, [&](auto row, auto column) {
        return static_cast<float>(comm.rank() + 1) * value_of(row, column);
      });
      const Matrix out(Dtype::f32, kRows, kColumns);
      int polls = 0;
      const std::function<void()> poll = [&] { ++polls; };
      OperatorFlows flows(lanes.exchange);
      flows.reduce = std::make_unique<BlockReduce>(lanes.exchange, lanes.cut, Dtype::f32, 1);
      flows.gather = std::make_unique<BlockGather>(lanes.exchange, lanes.cut, Way::back);
      flows.poll = PollHook(&poll);
      flows.reduce->begin({.out = out.view});
      flows.gather->begin({.own = out.view, .first_row = 0, .all = out.view});
      for (std::size_t part = 0; part < lanes.cut.parts().size(); ++part) {
        fall_behind(comm.rank(), part);
        flows.reduce->ready(static_cast<int>(part), lanes.blocks(part, partial.view));
        flows.step();
        if (world > 1) {
          EXPECT_LE(flows.gather->sent(), flows.reduce->summed());
        }
      }
      lanes.exchange.wait([&] { return flows.finish(); }, [&] { return flows.awaited(); });
      EXPECT_GT(polls, 0);
      const int times = world * (world + 1) / 2;
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t column = 0; column < kColumns; ++column)
          ASSERT_EQ(at(out.view, row, column), static_cast<float>(times) * value_of(row, column));
      }
    });
  }
}

}  // namespace
}  // namespace plait::overlap
