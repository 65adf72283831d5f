// Where threads meet, and what their meeting place remembers.
#include "comm/threads/room.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "plait/error.h"

namespace plait::comm::threads {
namespace {

TEST(Room, ForgetsTheRoomsOfEarlierSplits) {
  constexpr int kWorld = 4;
  const auto room = std::make_shared<Room>(kWorld);
  std::vector<std::jthread> ranks;
  ranks.reserve(kWorld);
  for (int rank = 0; rank < kWorld; ++rank) {
    ranks.emplace_back([&room, rank] {
      const auto seat = sit_down(room, rank, 30 * base::kSecond);
      const std::vector<int> members =
          rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{3, 1};
      for (int round = 0; round < 20; ++round) {
        const auto part = seat->subgroup(members, {});
        EXPECT_EQ(part->world(), 2);
        EXPECT_LE(room->side_rooms(), 2U);  // of this split, or of the next one
      }
    });
  }
}

// The first rank to leave a meeting may end the group before the last knows that all came.
TEST(Room, AMeetingThatAllCameToIsNotRefused) {
  const auto room = std::make_shared<Room>(2);
  std::jthread other;
  const auto watch = [&](int peer) {
    if (other.joinable()) return;
    other = std::jthread([&, peer] { room->meet(peer, {"late", {}}, 30 * base::kSecond, {}); });
    other.join();
    throw Error(Code::mismatch, "the next call went wrong", peer);
  };
  const auto gifts = room->meet(0, {"early", {}}, 30 * base::kSecond, watch);
  ASSERT_EQ(gifts.size(), 2U);
  EXPECT_EQ(gifts[1].bytes, "late");
}

}  // namespace
}  // namespace plait::comm::threads
