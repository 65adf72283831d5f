// The rendezvous of threads, and what it remembers of sub-groups.
#include "comm/meet/thread_rendezvous.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "comm/core/interruption.h"
#include "plait/error.h"

namespace plait::comm::threads {
namespace {

TEST(ThreadRendezvous, ForgetsTheSubgroupsOfEarlierSplits) {
  constexpr int kWorld = 4;
  const auto rendezvous = std::make_shared<ThreadRendezvous>(kWorld);
  std::vector<std::jthread> ranks;
  ranks.reserve(kWorld);
  for (int rank = 0; rank < kWorld; ++rank) {
    ranks.emplace_back([&rendezvous, rank] {
      const auto mine = join(rendezvous, rank, 30 * base::kSecond);
      const std::vector<int> members =
          rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{3, 1};
      for (int round = 0; round < 20; ++round) {
        const auto part = mine->subgroup(members, {});
        EXPECT_EQ(part->world(), 2);
        EXPECT_LE(rendezvous->subgroups_remembered(), 2U);  // of this split, or of the next one
      }
    });
  }
}

// The first rank to leave a meeting may end the group before the last knows that all came.
TEST(ThreadRendezvous, AMeetingThatAllCameToIsNotRefused) {
  const auto rendezvous = std::make_shared<ThreadRendezvous>(2);
  std::jthread other;
  const auto watch = [&](int peer) {
    if (other.joinable()) return;
    other =
        std::jthread([&, peer] { rendezvous->meet(peer, {"late", {}}, 30 * base::kSecond, {}); });
    other.join();
    throw Error(Code::mismatch, "the next call went wrong", peer);
  };
  const auto contributions = rendezvous->meet(0, {"early", {}}, 30 * base::kSecond, watch);
  ASSERT_EQ(contributions.size(), 2U);
  EXPECT_EQ(contributions[1].bytes, "late");
}

// Such an exception is thrown once: lost here, the caller would never hear of it.
TEST(ThreadRendezvous, AnInterruptionIsNotLostWhenTheLastRankComes) {
  struct Own {};
  const auto rendezvous = std::make_shared<ThreadRendezvous>(2);
  const auto hook = Interruption::counted([&] {
    std::jthread([&] { rendezvous->meet(1, {"late", {}}, 30 * base::kSecond, {}); }).join();
    throw Own();
  });
  const auto watch = [&](int) { hook(); };
  EXPECT_THROW(rendezvous->meet(0, {"early", {}}, 30 * base::kSecond, watch), Own);
}

}  // namespace
}  // namespace plait::comm::threads
