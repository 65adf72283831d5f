// The meeting of processes: messages to a rank when another is already further.
#include "comm/meet/socket_rendezvous.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/core/interruption.h"
#include "conformance/ranks.h"
#include "plait/error.h"

namespace plait::comm::shm {
namespace {

constexpr base::Nanoseconds kPatience = 60 * base::kSecond;

// Rank 0 may have gone on, and the group have ended, before rank 1 reads that all have come.
TEST(SocketRendezvous, AMeetingThatAllCameToIsNotRefused) {
  const std::string name = name_of_job(fresh_job());
  const auto endpoint = [](int rank) { return Endpoint{rank, 2, 30 * base::kSecond}; };
  std::promise<void> one_waits;
  std::promise<void> zero_is_done;
  const std::jthread zero([&] {
    const auto rendezvous = meet_at(name, endpoint(0));
    one_waits.get_future().wait();
    rendezvous->all_gather("early", {});
    zero_is_done.set_value();
  });
  const auto rendezvous = meet_at(name, endpoint(1));
  bool has_polled = false;
  const auto all = rendezvous->all_gather("late", [&](int peer) {
    if (!std::exchange(has_polled, true)) {
      one_waits.set_value();
      zero_is_done.get_future().wait();
    }
    throw Error(Code::mismatch, "the next call went wrong", peer);
  });
  EXPECT_EQ(all, (std::vector<std::string>{"early", "late"}));
}

// The caller's hook may throw an Error too, once, as Python's handlers of signals do.
struct Own : Error {
  explicit Own(Code code) : Error(code, "the caller's own words") {}
};

using Meeting = std::function<void(Rendezvous& rendezvous, const Watch& watch)>;

const Meeting kMeetings[] = {
    [](Rendezvous& rendezvous, const Watch& watch) { rendezvous.all_gather("bytes", watch); },
    [](Rendezvous& rendezvous, const Watch& watch) { rendezvous.share(64, "memory", watch); },
    [](Rendezvous& rendezvous, const Watch& watch) { rendezvous.subgroup({1, 0}, watch); },
};

TEST(SocketRendezvous, WhatTheCallersHookThrowsComesOutAsItIs) {
  for (const int interrupted : {0, 1}) {
    for (const Code code : {Code::system, Code::peer_lost}) {
      for (const Meeting& meet : kMeetings) {
        const std::string name = name_of_job(fresh_job());
        const auto endpoint = [](int rank) { return Endpoint{rank, 2, 30 * base::kSecond}; };
        std::promise<void> has_ended;
        const std::jthread other([&] {
          const auto rendezvous = meet_at(name, endpoint(1 - interrupted));
          has_ended.get_future().wait();
        });
        const auto rendezvous = meet_at(name, endpoint(interrupted));
        bool has_thrown = false;
        const auto hook = Interruption::counted([&] {
          if (!std::exchange(has_thrown, true)) throw Own(code);
        });
        EXPECT_THROW(meet(*rendezvous, [&](int /*peer*/) { hook(); }), Own);
        has_ended.set_value();
      }
    }
  }
}

// The kernel knows the process from the connection on.
TEST(SocketRendezvous, NamesTheProcessOfARankThatEndsWhileTheGroupAssembles) {
  const std::string name = name_of_job(fresh_job());
  const auto endpoint = [](int rank) { return Endpoint{rank, 2, 30 * base::kSecond}; };
  const pid_t one = ::fork();
  if (one == 0) {
    attend(name, endpoint(1));
    ::_exit(0);
  }
  const Error error = expect_error(Code::peer_lost, [&] { meet_at(name, endpoint(0)); });
  EXPECT_EQ(error.culprit(), 1);
  EXPECT_EQ(error.what(),
            base::sentence("rank 1 (pid ", one, ") has left or closed its connection"));
  ::waitpid(one, nullptr, 0);
}

// Before ranks have met: rank 0 listens, or calls and is not answered yet.
TEST(SocketRendezvous, WhatTheCallersHookThrowsEndsTheMeetingAsItIs) {
  for (const int rank : {0, 1}) {
    const std::string name = name_of_job(fresh_job());
    const auto hook = Interruption::counted([] { throw Own(Code::system); });
    const Watch watch = [&](int /*peer*/) { hook(); };
    EXPECT_THROW(meet_at(name, {rank, 2, 30 * base::kSecond}, watch), Own);
  }
}

// Calls body(rank, rendezvous) on a thread for each rank.
void meet_in_threads(int world, const std::function<void(int, std::unique_ptr<Rendezvous>)>& body) {
  const std::string name = name_of_job(fresh_job());
  std::vector<std::jthread> ranks;
  ranks.reserve(world);
  for (int rank = 0; rank < world; ++rank) {
    ranks.emplace_back([&, rank] { body(rank, meet_at(name, {rank, world, kPatience})); });
  }
}

// Each thread of a rank uses a group of its own, and each rank is ahead in another of them.
TEST(SocketRendezvous, GroupsThatShareSocketsMeetAtTheSameTime) {
  constexpr int kWorld = 3;
  constexpr int kGroups = 3;
  constexpr int kRounds = 30;
  meet_in_threads(kWorld, [](int rank, std::unique_ptr<Rendezvous> rendezvous) {
    std::vector<std::unique_ptr<Rendezvous>> groups;
    groups.reserve(kGroups);
    for (int group = 0; group < kGroups; ++group)
      groups.push_back(rendezvous->subgroup({2, 0, 1}, {}));
    const int me = (rank + 1) % kWorld;
    const auto meet = [&](int number) {
      Rendezvous& group = *groups[number];
      EXPECT_EQ(group.rank(), me);
      for (int round = 0; round < kRounds; ++round) {
        const std::string said = std::to_string(number) + ' ' + std::to_string(round) + ' ';
        const auto all = group.all_gather(said + std::to_string(me), {});
        EXPECT_EQ(all, (std::vector<std::string>{said + '0', said + '1', said + '2'}));
        EXPECT_EQ(group.share(64, said, {}).size(), static_cast<std::size_t>(kWorld));
      }
    };
    std::vector<std::jthread> threads;
    threads.reserve(kGroups);
    for (int turn = 0; turn < kGroups; ++turn) {
      threads.emplace_back(meet, (turn + rank) % kGroups);
    }
    // The parent meets too.
    for (int round = 0; round < kRounds; ++round) {
      EXPECT_EQ(rendezvous->all_gather("parent", {}), std::vector<std::string>(kWorld, "parent"));
    }
  });
}

// The rank that has a socket to each of the others is in the midst of the sub-group.
TEST(SocketRendezvous, ASubGroupOutlivesItsParent) {
  meet_in_threads(4, [](int rank, std::unique_ptr<Rendezvous> rendezvous) {
    const bool is_in = rank != 2;
    auto part = rendezvous->subgroup(is_in ? std::vector<int>{3, 0, 1} : std::vector<int>{}, {});
    ASSERT_EQ(part != nullptr, is_in);
    rendezvous.reset();
    if (!is_in) return;
    const auto inner = part->subgroup({2, 1, 0}, {});
    part.reset();
    EXPECT_EQ(inner->all_gather(std::to_string(rank), {}),
              (std::vector<std::string>{"1", "0", "3"}));
  });
}

// The others go on in the groups that it has not left.
TEST(SocketRendezvous, ARankThatLeavesOneGroupIsMissedInThatAlone) {
  for (int leaver = 0; leaver < 3; ++leaver) {
    meet_in_threads(3, [&](int rank, std::unique_ptr<Rendezvous> rendezvous) {
      auto left = rendezvous->subgroup({0, 1, 2}, {});
      const auto kept = rendezvous->subgroup({0, 1, 2}, {});
      if (rank == leaver) {
        left.reset();
      } else {
        expect_error(Code::peer_lost, leaver, "left or closed",
                     [&] { left->all_gather("bytes", {}); });
      }
      EXPECT_EQ(kept->all_gather("here", {}).size(), 3U);
      EXPECT_EQ(rendezvous->all_gather("here", {}).size(), 3U);
    });
  }
}

// More groups end at once than a socket has room for notices of it.
TEST(SocketRendezvous, ManyGroupsEndAtOnce) {
  constexpr int kMany = 1000;
  meet_in_threads(2, [](int rank, std::unique_ptr<Rendezvous> rendezvous) {
    std::vector<std::unique_ptr<Rendezvous>> groups;
    groups.reserve(kMany);
    for (int group = 0; group < kMany; ++group) groups.push_back(rendezvous->subgroup({0, 1}, {}));
    auto last = std::move(groups.back());
    groups.clear();
    EXPECT_EQ(last->all_gather("still here", {}).size(), 2U);
    if (rank == 0) {
      last.reset();
    } else {
      expect_error(Code::peer_lost, [&] { last->all_gather("bytes", {}); });
    }
    EXPECT_EQ(rendezvous->all_gather("still here", {}).size(), 2U);
  });
}

}  // namespace
}  // namespace plait::comm::shm
