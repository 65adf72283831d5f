// Collectives that a thread has started, seen by other threads: which of them advances what, and
// what becomes of communicators that go meanwhile.
#include "comm/core/started.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "comm/milestones.h"
#include "comm/session/state.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"
#include "plait/link.h"

namespace plait {
namespace {

// More than slots hold.
constexpr std::size_t kCount = 300'000;

Pending start_sum(std::vector<float>& data, Communicator& comm) {
  return start_all_reduce({data.data(), data.size()}, {data.data(), data.size()}, comm);
}

TEST(Started, IsListedWhileSomethingIsUnderWay) {
  std::atomic<bool> is_checked{false};
  run_as_threads(2, [&](Communicator& comm) {
    EXPECT_FALSE(comm::has_started());
    std::vector<float> data(kCount, 1.0F);
    while (comm.rank() == 1 && !is_checked) std::this_thread::yield();
    Pending pending = start_sum(data, comm);
    if (comm.rank() == 0) {
      EXPECT_TRUE(comm::has_started());
      EXPECT_FALSE(comm::advance_started()) << "the other rank has not come yet";
      is_checked = true;
    }
    pending.wait();
    EXPECT_FALSE(comm::has_started());
  });
}

// It takes twice as long as a rank waits for another.
TEST(Started, IsTimeForARankThatMakesAGroupMeanwhile) {
  run_as_threads(2, [](Communicator& comm) {
    Communicator slow = comm.with_link(parse_link("20mbit,1us"));
    set_timeout(comm, std::chrono::seconds(2));
    std::vector<float> data(2'500'000, 1.0F);
    Pending pending = start_sum(data, slow);
    if (comm.rank() == 1) pending.wait();
    EXPECT_NO_THROW(comm.split(0, 0));
    pending.wait();
  });
}

// A program starts a sum on one thread and waits for it on another, while the first thread waits in
// another communicator and advances it until then. The thread sanitizer looks on.
TEST(Started, GoesToTheThreadThatUsesItsCommunicatorNext) {
  run_as_threads(2, [](Communicator& comm) {
    std::optional<Communicator> part = comm.split(0, comm.rank());
    for (int round = 0; round < 10; ++round) {
      std::vector<float> data(kCount, 1.0F);
      Pending pending = start_sum(data, *part);
      std::jthread other([&] {
        if (round % 2 == 0) std::this_thread::yield();
        if (round % 3 == 0) {
          while (!pending.done()) std::this_thread::yield();
        } else {
          pending.wait();
        }
        EXPECT_EQ(data, std::vector<float>(kCount, 2.0F));
        EXPECT_FALSE(comm::has_started());
      });
      if (comm.rank() == round % 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      barrier(comm);
      other.join();
      barrier(comm);
    }
  });
}

// A communicator is destroyed on another thread than the one that advances it.
TEST(Started, AThreadForgetsWhatAnotherHasDestroyed) {
  run_as_threads(2, [](Communicator& comm) {
    for (int round = 0; round < 10; ++round) {
      std::optional<Communicator> part = comm.split(0, comm.rank());
      std::vector<float> data(kCount, 1.0F);
      std::optional<Pending> pending = start_sum(data, *part);
      std::jthread other([&] {
        part.reset();
        pending.reset();
      });
      barrier(comm);
      other.join();
    }
    barrier(comm);
    comm::advance_started();
    EXPECT_FALSE(comm::has_started());
  });
}

// A thread has ended when its collective is waited for.
TEST(Started, OutlivesTheThreadThatStartedIt) {
  run_as_threads(2, [](Communicator& comm) {
    std::vector<float> data(kCount, 1.0F);
    std::optional<Pending> pending;
    std::jthread([&] { pending = start_sum(data, comm); }).join();
    pending->wait();
    EXPECT_EQ(data, std::vector<float>(kCount, 2.0F));
  });
}

#ifndef __SANITIZE_THREAD__  // which knows nothing of what a forked child does
TEST(Started, AForkedChildAdvancesNothingOfItsParent) {
  Milestones checked;
  run_in_processes(2, [&](Communicator& comm) {
    if (comm.rank() == 1) checked.await(0);  // so that the sum is not over when rank 0 forks
    std::vector<float> data(kCount, 1.0F);
    Pending pending = start_sum(data, comm);
    if (comm.rank() == 0) {
      const pid_t child = ::fork();
      if (child == 0) {
        run_as_threads(1, [](Communicator& own) { barrier(own); });
        const bool moved = comm::advance_started();
        ::_exit(comm::has_started() ? 1 : moved ? 0 : 2);
      }
      int status = -1;
      ::waitpid(child, &status, 0);
      EXPECT_EQ(status, 0) << "what is the parent's is dropped from the list, and not touched";
      checked.reach(0);
    }
    pending.wait();
    EXPECT_EQ(data, std::vector<float>(kCount, 2.0F));
  });
}
#endif

}  // namespace
}  // namespace plait
