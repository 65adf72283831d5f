// The parts of a layer: which rows go where, which may be multiplied, and the activation.
#include "experts/rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "comm/vector_flow.h"
#include "experts/activation.h"
#include "experts/combine.h"
#include "experts/placement.h"
#include "tensor/kernels.h"

namespace plait::experts {
namespace {

TEST(Placement, IsEvenOrAsTheMapSays) {
  const Placement even({.experts = 7}, 3, {});
  EXPECT_EQ(std::vector<int>(even.ranks().begin(), even.ranks().end()),
            (std::vector<int>{0, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(even.groups(), 3);
  EXPECT_EQ(even.local(4), 1);
  const Placement map({.experts = 4}, 3, std::vector<int>{2, 0, 2, 0});
  EXPECT_EQ(map.experts_of(2), (std::vector<std::int64_t>{0, 2}));
  EXPECT_TRUE(map.experts_of(1).empty());
  EXPECT_EQ(map.local(2), 1);
}

TEST(Placement, HasThePartsOfAnExpertOnRanksThatFollowOneAnother) {
  const auto of = [](int world, std::int64_t experts, std::int64_t parts) {
    const Placement placement({.experts = experts, .parts = parts}, world, {});
    return std::vector<int>(placement.ranks().begin(), placement.ranks().end());
  };
  EXPECT_EQ(of(4, 3, 2), (std::vector<int>{0, 1, 0, 1, 2, 3}));
  EXPECT_EQ(of(2, 3, 2), (std::vector<int>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(of(3, 2, 2), (std::vector<int>{0, 0, 1, 2}));
  EXPECT_EQ(of(1, 2, 2), (std::vector<int>{0, 0, 0, 0}));
}

TEST(SlotOrder, HasASlotForEachPart) {
  const Placement placement({.experts = 2, .parts = 2}, 2, {});
  SlotOrder order;
  order.sort(std::vector<std::int64_t>{1, -1, 0}, placement);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(order.slots(rank, 0)[0], 4 + rank);
    EXPECT_EQ(order.slots(rank, 1)[0], 0 + rank);
    EXPECT_EQ(order.slots(rank).size(), 2U);
  }
}

TEST(SlotOrder, KeepsTheOrderOfAnExpertsSlots) {
  const Placement placement({.experts = 3}, 2, {});
  SlotOrder order;
  const std::vector<std::int64_t> ids = {2, 0, -1, 1, 0, 0, 2};
  order.sort(ids, placement);
  const auto slots = [&](int rank, std::int64_t group) {
    const auto its = order.slots(rank, group);
    return std::vector<std::int64_t>(its.begin(), its.end());
  };
  EXPECT_EQ(slots(0, 0), (std::vector<std::int64_t>{1, 4, 5}));
  EXPECT_EQ(slots(0, 1), (std::vector<std::int64_t>{3}));
  EXPECT_EQ(slots(1, 0), (std::vector<std::int64_t>{0, 6}));
  EXPECT_TRUE(slots(1, 1).empty());
  EXPECT_EQ(order.slots(0).size(), 4U);
}

TEST(CountedRows, RefuseMoreThanMemoryCouldHold) {
  run_in_threads(1, [](Communicator& comm) {
    comm::CountedRows rows(1, 2, std::int64_t{1} << 20);
    const std::vector<std::int64_t> counts = {std::int64_t{1} << 25, std::int64_t{1} << 25};
    rows.learn(0, counts, "a call", comm.state().group());
    EXPECT_EQ(rows.counts(0)[1], counts[1]);
    const std::vector<std::int64_t> more = {counts[0] + 1, counts[1]};
    const Error error =
        expect_error(Code::mismatch, [&] { rows.learn(0, more, "a call", comm.state().group()); });
    EXPECT_EQ(std::string(error.what()),
              "a call: rank 0 sends rank 0 67108865 rows, for which no memory has room");
  });
}

// All rows are found once, however they come and whatever is finished meanwhile, and results of a
// rank's block are ready in its order.
TEST(Progress, FindsEachRowOnce) {
  std::minstd_rand random(5);
  for (int round = 0; round < 60; ++round) {
    const int world = 1 + round % 4;
    const auto groups = static_cast<std::int64_t>(1 + round % 5);
    comm::CountedRows rows(world, groups, 1);
    const unsigned most_rows = round % 2 == 0 ? 9 : 300;
    for (int rank = 0; rank < world; ++rank) {
      for (std::int64_t& count : rows.counts(rank))
        count = random() % 3 == 0 ? 0 : static_cast<std::int64_t>(random() % most_rows);
    }
    rows.lay_out(true);
    Progress progress;
    const bool whole = round % 3 == 0;
    progress.begin(rows, {.count = groups, .whole = whole}, world);
    std::vector<int> found(static_cast<std::size_t>(rows.rows()), 0);
    std::vector<std::int64_t> come(static_cast<std::size_t>(world), 0);
    Work work;
    while (!progress.done()) {
      for (int rank = 0; rank < world; ++rank) {
        std::int64_t& its = come[static_cast<std::size_t>(rank)];
        its = std::min(its + static_cast<std::int64_t>(random() % 40), rows.block(rank).rows());
        progress.set_received(rank, its);
      }
      if (!progress.find(100, work)) continue;
      ASSERT_LT(work.begin, work.end);
      if (!whole) {
        ASSERT_LE(work.end - work.begin, 100);
      }
      std::int64_t sum = 0;
      for (const std::int64_t count : work.counts) sum += count;
      ASSERT_EQ(sum, work.end - work.begin);
      for (std::int64_t row = work.begin; row < work.end; ++row)
        ++found[static_cast<std::size_t>(row)];
      for (int rank = 0; rank < world; ++rank) {
        // None that has not come.
        const auto& block = rows.block(rank);
        block.for_each_run({come[static_cast<std::size_t>(rank)], block.rows()},
                           [&](comm::RowRange range, std::int64_t /*at*/) {
                             for (std::int64_t row = range.begin; row < range.end; ++row)
                               ASSERT_EQ(found[static_cast<std::size_t>(row)], 0);
                           });
      }
      progress.finish(work);
      for (int rank = 0; rank < world; ++rank) {
        rows.block(rank).for_each_run({0, progress.finished(rank)},
                                      [&](comm::RowRange range, std::int64_t /*at*/) {
                                        for (std::int64_t row = range.begin; row < range.end; ++row)
                                          ASSERT_EQ(found[static_cast<std::size_t>(row)], 1);
                                      });
      }
    }
    for (const int times : found) ASSERT_EQ(times, 1);
    for (int rank = 0; rank < world; ++rank)
      EXPECT_EQ(progress.finished(rank), rows.block(rank).rows());
  }
}

std::vector<float> silu_of(const std::vector<float>& from) {
  std::vector<float> to(from.size());
  activate({.kind = ExpertActivation::silu}, from.data(), nullptr,
           TensorView::of(to.data(), 1, static_cast<std::int64_t>(to.size())));
  return to;
}

TEST(Activation, IsAsGoodAsItsRoundings) {
  std::vector<float> from;
  for (float z = -86.0F; z < 86.0F; z += 0.0137F) from.push_back(z);
  const std::vector<float> to = silu_of(from);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const double z = from[i];
    const double exact = z / (1 + std::exp(-z));
    // z * log2(e) is rounded where n is found, not in r; then come the series, with 9 roundings,
    // the sum, the quotient and the product.
    ASSERT_NEAR(to[i], exact, 14 * 0x1p-24 * std::abs(exact)) << z;
  }
}

TEST(Activation, KeepsWhatHasNoLimits) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> to = silu_of({infinity, std::nanf(""), 0.0F, 1000.0F, -1000.0F, -0.0F});
  EXPECT_EQ(to[0], infinity);
  EXPECT_TRUE(std::isnan(to[1]));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(to[2]), 0U);
  EXPECT_EQ(to[3], 1000.0F);
  EXPECT_NEAR(to[4], 0.0F, 1e-30F);
  for (const float value : silu_of({-1e35F, -3e38F})) EXPECT_EQ(value, 0.0F);
}

TEST(Activation, OfAnElementDependsOnNothingElse) {
  std::minstd_rand random(3);
  std::vector<float> from(1000);
  for (float& value : from) value = static_cast<float>(random() % 2000) / 100.0F - 10.0F;
  const std::vector<float> all = silu_of(from);
  for (const std::size_t at : {0UL, 3UL, 255UL, 256UL, 999UL}) {
    const std::vector<float> one = silu_of({from[at]});
    EXPECT_EQ(std::bit_cast<std::uint32_t>(one[0]), std::bit_cast<std::uint32_t>(all[at]));
  }
}

TEST(Combine, AddsInTheOrderOfSlots) {
  // 2^24 + 1 + 1 is 2^24 in this order, and 2^24 + 2 in the other.
  const std::vector<float> large = {0x1p24F};
  const std::vector<float> one = {1.0F};
  const std::vector<const void*> results = {large.data(), one.data(), one.data(),   nullptr,
                                            one.data(),   one.data(), large.data(), nullptr};
  const std::vector<float> weights(8, 1.0F);
  std::vector<float> out(2);
  combine(
      {.results = results, .dtype = Dtype::f32, .weights = weights.data(), .top = 4, .parts = 1},
      TensorView::of(out.data(), 2, 1), 1);
  EXPECT_EQ(out[0], 0x1p24F);
  EXPECT_EQ(out[1], 0x1p24F + 2);
}

TEST(Combine, HasOneNotANumber) {
  const float one = 1;
  const std::vector<const void*> results = {&one};
  const std::vector<float> weights = {std::bit_cast<float>(0x7fc00001U)};
  float out = 0;
  combine(
      {.results = results, .dtype = Dtype::f32, .weights = weights.data(), .top = 1, .parts = 1},
      TensorView::of(&out, 1, 1), 1);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(out), tensor::kNan);
}

// Rows of which both ranks know how many there are, and which are sent as they get ready.
TEST(KnownRows, TravelWithoutAHeaderAsTheyAreReady) {
  comm::in_every_placement(
      {{1, 1}, {2, 1}, {3, 1}}, [](Communicator& comm, comm::VectorLanes& lanes,
                                   const comm::Hosts& /*hosts*/, const comm::Layout& /*layout*/) {
        constexpr std::int64_t kCols = 300;
        constexpr std::int64_t kEach = 27;
        const auto rows_for = [](int from, int to) {
          return static_cast<std::int64_t>((5 * from + 3 * to) % 4 * 9);
        };
        const int world = comm.world();
        std::vector<float> out(static_cast<std::size_t>(world * kEach * kCols));
        std::vector<float> in(out.size(), -1.0F);
        KnownRows rows;
        rows.clear(world);
        rows.from = ConstTensorView::of(std::as_const(out).data(), world * kEach, kCols);
        rows.to = TensorView::of(in.data(), world * kEach, kCols);
        for (int peer = 0; peer < world; ++peer) {
          const auto index = static_cast<std::size_t>(peer);
          // Backwards, so that each is a run of its own.
          for (std::int64_t row = rows_for(comm.rank(), peer); row-- > 0;)
            rows.to_peers[index].add(peer * kEach + row, 1);
          rows.from_peers[index].add(peer * kEach, rows_for(peer, comm.rank()));
        }
        comm::RowFlow flow(lanes.lanes(), rows,
                           comm::RowCut(rows.from, 0, lanes.capacity().chunk_bytes));
        lanes.begin_call();
        flow.begin();
        flow.hold();
        EXPECT_TRUE(flow.has_places());
        for (int i = 0; i < 20; ++i) flow.step();
        for (std::int64_t ready = 0; ready <= kEach; ready += 3) {
          for (const int peer : lanes.lanes().peers()) {
            const std::int64_t all = rows_for(comm.rank(), peer);
            for (std::int64_t row = all - std::min(ready, all); row < all; ++row) {
              float* const place = &out[static_cast<std::size_t>((peer * kEach + row) * kCols)];
              std::fill_n(place, kCols, static_cast<float>(std::int64_t{1000} * comm.rank() + row));
            }
            flow.ready(peer, std::min(ready, all));
          }
          flow.step();
        }
        lanes.finish(flow);
        for (const int peer : lanes.lanes().peers()) {
          const std::int64_t all = rows_for(peer, comm.rank());
          for (std::int64_t row = 0; row < all; ++row) {
            EXPECT_EQ(in[static_cast<std::size_t>((peer * kEach + row) * kCols + 7)],
                      static_cast<float>(std::int64_t{1000} * peer + all - 1 - row));
          }
        }
      });
}

}  // namespace
}  // namespace plait::experts
