#include "comm/flow/chunks.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "plait/collectives.h"
#include "plait/communicator.h"

namespace plait::comm {
namespace {

std::size_t received_bytes(int world) {
  const MailboxDesc desc = lane_capacity_for(world).mailbox();
  return std::size_t{2} * desc.slots * desc.slot_bytes * static_cast<std::size_t>(world);
}

TEST(LaneCapacityFor, IsFullInSmallWorlds) {
  for (const int world : {1, 2, 3, 8, 16}) {
    EXPECT_EQ(lane_capacity_for(world).chunk_bytes, kChunkBytes) << world;
    EXPECT_EQ(lane_capacity_for(world).per_lane, kSlotsPerLane) << world;
  }
}

TEST(LaneCapacityFor, IsBoundedInLargeOnes) {
  for (int world = 1; world <= 1024; ++world) {
    EXPECT_LE(received_bytes(world), kReceivedBytes) << world;
    EXPECT_GE(lane_capacity_for(world).chunk_bytes, kLeastChunkBytes) << world;
    EXPECT_EQ(kSlotsPerLane % lane_capacity_for(world).per_lane, 0U) << world;
  }
  EXPECT_EQ(lane_capacity_for(17).chunk_bytes, kChunkBytes / 2);
  EXPECT_EQ(lane_capacity_for(128).per_lane, kSlotsPerLane);
  EXPECT_EQ(lane_capacity_for(129).per_lane, kSlotsPerLane / 2);
  EXPECT_EQ(lane_capacity_for(100000).per_lane, 1U);  // a chunk from each there must be
}

// A large world holds as much as was promised, and its sums are right though chunks are smaller.
TEST(LaneCapacityFor, IsWhatACommunicatorHolds) {
  constexpr int kWorld = 20;
  constexpr int kRanks = kWorld * (kWorld - 1) / 2;  // 0 + 1 + ... + 19
  run_in_threads(kWorld, [](Communicator& comm) {
    EXPECT_LT(comm.mailbox_bytes(), kReceivedBytes);
    std::vector<float> data(200003);
    std::iota(data.begin(), data.end(), static_cast<float>(comm.rank()));
    all_reduce({data.data(), data.size()}, comm);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < data.size(); ++i) {
      const auto expected = static_cast<float>(kWorld * i + kRanks);
      wrong += data[i] != expected ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0U);
  });
}

}  // namespace
}  // namespace plait::comm
