// One communicator serves one thread at a time, and says so.
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <utility>

#include "comm/milestones.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

constexpr int kBesideIsDone = 0;
constexpr int kBarrierWaits = 1;  // rank 0, in the barrier for which rank 1 doesn't come yet

thread_local bool enters_barrier = false;

// Whose hook tells that the barrier waits: the library asks it only there.
CommunicatorOptions telling_of_a_wait(Milestones& reached) {
  return {.interrupted = [&reached] {
    if (enters_barrier) reached.reach(kBarrierWaits);
  }};
}

void wait_in_barrier(Communicator& comm) {
  enters_barrier = true;
  barrier(comm);
  enters_barrier = false;
}

// Rank 1 comes to the barrier when `beside` has run beside rank 0, which waits there.
void run_beside_a_barrier(const std::function<void(Communicator& comm)>& beside) {
  const auto body = [&](Communicator& comm, Milestones& reached) {
    if (comm.rank() == 1) {
      reached.await(kBesideIsDone);
      return barrier(comm);
    }
    const std::jthread other([&] {
      reached.await(kBarrierWaits);
      beside(comm);
      reached.reach(kBesideIsDone);
    });
    wait_in_barrier(comm);
  };
  for (const auto& runner : {run_in_processes, run_as_threads}) {
    Milestones reached;
    runner(2, [&](Communicator& comm) { body(comm, reached); }, telling_of_a_wait(reached));
  }
}

TEST(TwoThreads, AreToldSoWhereTheyMeet) {
  run_beside_a_barrier([](Communicator& comm) {
    float sum = 1;
    const std::pair<const char*, std::function<void()>> calls[] = {
        {"barrier", [&] { barrier(comm); }},
        {"all_reduce", [&] { all_reduce({&sum, 1}, comm); }},
        {"start_barrier", [&] { start_barrier(comm).wait(); }},
        {"split", [&] { comm.split(0, 0); }},
        {"with_link", [&] { comm.with_link(std::nullopt); }},
        {"make_mailbox", [&] { comm.make_mailbox({.slots = 1, .slot_bytes = 8}); }},
        {"cached_mailbox", [&] { comm.cached_mailbox({.slots = 1, .slot_bytes = 8}); }}};
    for (const auto& [name, call] : calls) {
      SCOPED_TRACE(name);
      expect_error(Code::invalid_argument, Error::kNoRank,
                   "two threads use this communicator (rank 0 of 2) at once", call);
    }
  });
}

TEST(TwoThreads, OneMayPollNothingWhileTheOtherCalls) {
  Milestones reached;
  run_as_threads(
      2,
      [&](Communicator& comm) {
        if (comm.rank() == 1) {
          reached.await(kBesideIsDone);
          return barrier(comm), barrier(comm);
        }
        Pending pending = start_barrier(comm);
        {
          const std::jthread other([&] {
            reached.await(kBarrierWaits);
            expect_error(Code::invalid_argument, "two threads", [&] { pending.progress(); });
            reached.reach(kBesideIsDone);
          });
          wait_in_barrier(comm);
        }
        EXPECT_TRUE(pending.done());
      },
      telling_of_a_wait(reached));
}

TEST(TwoThreads, OneMayAbortWhatTheOtherWaitsFor) {
  Milestones aborted;
  const auto body = [&](Communicator& comm) {
    if (comm.rank() == 1) {
      aborted.await(0);
      expect_error(Code::peer_lost, [&] { barrier(comm); });
      return;
    }
    const std::jthread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      comm.abort("enough");
      aborted.reach(0);
    });
    expect_error(Code::peer_lost, [&] { barrier(comm); });
  };
  run_as_threads(2, body);
}

// A communicator serves one thread at a time, but each call may come from another thread.
TEST(TwoThreads, OneMayComeAfterTheOther) {
  run_as_threads(2, [](Communicator& comm) {
    for (int round = 0; round < 20; ++round) {
      std::jthread([&] { barrier(comm); }).join();
      barrier(comm);
    }
  });
}

// In a child forked meanwhile no other thread is left that could use it.
TEST(TwoThreads, AreNotBlamedInAForkedChild) {
  Milestones reached;
  run_in_processes(
      2,
      [&](Communicator& comm) {
        if (comm.rank() == 1) {
          reached.await(kBesideIsDone);
          return barrier(comm);
        }
        const std::jthread other([&] {
          reached.await(kBarrierWaits);
          fork_ranks(1, [&](int) {
            expect_error(Code::invalid_argument, "was forked from rank 0", [&] { barrier(comm); });
          });
          reached.reach(kBesideIsDone);
        });
        wait_in_barrier(comm);
      },
      telling_of_a_wait(reached));
}

}  // namespace
}  // namespace plait
