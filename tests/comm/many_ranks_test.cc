// Many ranks, under the limits of an ordinary user: the kernel does not limit root as much.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/sanitized.h"
#include "comm/meet/socket_rendezvous.h"
#include "conformance/descriptors.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using comm::shm::meet_at;
using comm::shm::name_of_job;

constexpr uid_t kNobody = 65534;

// In a child of the test.
void be_a_user(rlim_t files) {
  const rlimit limit = {.rlim_cur = files, .rlim_max = files};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  if (::geteuid() != 0) return;
  ASSERT_EQ(::setuid(kNobody), 0);
}

TEST(ManyRanks, ADescriptorForEachPeerAtMost) {
  constexpr int kWorld = 8;
  const std::string job = fresh_job();
  fork_ranks(kWorld, [&](int rank) {
    const int before = open_descriptors();
    const CommunicatorOptions options = {.transport = "shm",
                                         .place = Place{.rank = rank, .world = kWorld, .job = job}};
    Communicator comm = Communicator::connect(options);
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 64});
    EXPECT_LE(open_descriptors() - before, kWorld + 1);
    std::vector<Communicator> parts;
    // In another order, so that another rank is their first; and halves.
    for (const int sign : {1, -1}) {
      parts.push_back(*comm.split(0, sign * rank));
      parts.push_back(*parts.back().split(rank % 2, sign * rank));
      for (Communicator& part : parts) barrier(part);
      EXPECT_LE(open_descriptors() - before, kWorld + 1);
    }
    parts.clear();
    EXPECT_LE(open_descriptors() - before, kWorld + 1);
  });
}

// Such a sub-group makes sockets of its own, and its own sub-groups use these.
TEST(ManyRanks, ADescriptorForEachPeerAtMostWithoutTheParentsFirstRank) {
  constexpr int kWorld = 8;
  constexpr int kMembers = kWorld - 1;
  const std::string job = fresh_job();
  fork_ranks(kWorld, [&](int rank) {
    const CommunicatorOptions options = {.transport = "shm",
                                         .place = Place{.rank = rank, .world = kWorld, .job = job}};
    Communicator comm = Communicator::connect(options);
    const int before = open_descriptors();
    auto part = comm.split(rank == 0 ? -1 : 0, rank);
    ASSERT_EQ(part.has_value(), rank != 0);
    const int of_members = rank == 1 ? kMembers - 1 : 1;
    const int opened = part ? of_members : 0;
    EXPECT_EQ(open_descriptors() - before, opened);
    if (!part) return;
    auto mailbox = part->make_mailbox({.slots = 1, .slot_bytes = 64});
    std::vector<Communicator> parts;
    for (const int sign : {1, -1}) {
      parts.push_back(*part->split(0, sign * rank));
      barrier(parts.back());
    }
    EXPECT_EQ(open_descriptors() - before, opened);
    parts.clear();
    mailbox.reset();
    part.reset();
    EXPECT_EQ(open_descriptors(), before);
  });
}

TEST(ManyRanks, SixtyFourRanksHaveTwentySubGroups) {
  constexpr int kWorld = kIsSanitized ? 24 : 64;  // which need much memory
  const std::string name = name_of_job(fresh_job()) + "-many";
  fork_ranks(kWorld, [&](int rank) {
    be_a_user(16 * kWorld);
    const auto rendezvous = meet_at(name, {rank, kWorld, 90 * base::kSecond});
    std::vector<int> all(kWorld);
    for (int peer = 0; peer < kWorld; ++peer) all[peer] = peer;
    std::vector<std::unique_ptr<comm::Rendezvous>> parts;
    parts.reserve(20);
    for (int part = 0; part < 20; ++part) parts.push_back(rendezvous->subgroup(all, {}));
    for (const auto& part : parts) {
      EXPECT_EQ(part->share(4096, "test", {}).size(), static_cast<std::size_t>(kWorld));
    }
    EXPECT_LT(open_descriptors(), 2 * kWorld);
  });
}

// Each sends a descriptor to each other: many more at a time than the user may have on their way.
TEST(ManyRanks, NinetySixRanksOfAUserConnectEveryTime) {
  constexpr int kWorld = kIsSanitized ? 24 : 96;
  const std::string job = fresh_job();
  const auto be_rank = [&](int rank) {
    be_a_user(1024);
    for (int turn = 0; turn < 2; ++turn) {
      Communicator comm =
          Communicator::connect({.transport = "shm",
                                 .place = Place{.rank = rank, .world = kWorld, .job = job},
                                 .timeout = std::chrono::seconds(150)});
      EXPECT_EQ(sum_of_ones(comm), kWorld);
    }
  };
  fork_ranks(kWorld, be_rank, 180);
}

// Each rank's limit of descriptors leaves it just as many as it needs.
TEST(ManyRanks, ManyMoreRanksThanDescriptorsOnTheirWay) {
  constexpr int kWorld = 24;
  const std::string name = name_of_job(fresh_job()) + "-many";
  fork_ranks(kWorld, [&](int rank) {
    be_a_user(80);
    const auto rendezvous = meet_at(name, {rank, kWorld, 90 * base::kSecond});
    for (int round = 0; round < 20; ++round) {
      EXPECT_EQ(rendezvous->share(4096, "test", {}).size(), static_cast<std::size_t>(kWorld));
    }
  });
}

}  // namespace
}  // namespace plait
