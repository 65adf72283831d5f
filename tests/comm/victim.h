// A rank to which something happens while the others wait for it.
#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/milestones.h"
#include "comm/tcp_case.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {

// A rank that is killed, or stopped, while the others wait for it. Rank 1 shares memory with it
// where both are on one of several hosts; without hosts the ranks are on one.
struct VictimCase {
  std::string transport;
  std::string job;
  int signal;
  std::chrono::milliseconds timeout;
  std::vector<int> hosts = {0, 0, 0};
  std::function<void(Communicator&)> wait = barrier;  // the call in which they wait for it
};

inline void run_with_a_victim(const VictimCase& victim_case) {
  const int signal = victim_case.signal;
  constexpr int kHasGivenUp = 0;
  constexpr int kHasLeftBarrier = 1;  // the first, in which nothing may happen to a rank yet
  Milestones reached;
  int pids[2];
  ASSERT_EQ(::pipe(pids), 0);
  const Helper killer([&] {
    ::close(pids[1]);  // if no victim has come, the read below ends
    pid_t victim = 0;
    if (::read(pids[0], &victim, sizeof(victim)) != static_cast<ssize_t>(sizeof(victim))) {
      ADD_FAILURE() << "no rank to be killed has come";
      return;
    }
    reached.await(kHasLeftBarrier, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::kill(victim, signal);
    if (signal == SIGKILL) return;
    reached.await(kHasGivenUp, 2);
    ::kill(victim, SIGKILL);
  });
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a stopped rank must not outlive the test
    CommunicatorOptions options = options_of(rank, 3, victim_case.job, victim_case.hosts[rank]);
    options.transport = victim_case.transport;
    Communicator comm = Communicator::connect(options);
    barrier(comm);
    set_timeout(comm, victim_case.timeout);
    if (rank == 2) {
      const pid_t self = ::getpid();
      if (::write(pids[1], &self, sizeof(self)) < 0) ::_exit(3);
      for (;;) ::pause();
    }
    reached.reach(kHasLeftBarrier);
    const auto start = std::chrono::steady_clock::now();
    const Error error = expect_error(signal == SIGKILL ? Code::peer_lost : Code::timeout,
                                     [&] { victim_case.wait(comm); });
    reached.reach(kHasGivenUp);
    EXPECT_EQ(error.culprit(), 2) << error.what();
    EXPECT_TRUE(contains(error.what(), "rank 2")) << error.what();
    if (signal == SIGKILL) {
      EXPECT_TRUE(contains(error.what(), "is lost")) << error.what();
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    }
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  for (const int end : pids) ::close(end);
  for (int rank = 0; rank < 3; ++rank) {
    int status = 0;
    ::waitpid(children[rank], &status, 0);
    if (rank != 2) {
      EXPECT_EQ(status, 0) << "rank " << rank;
    }
  }
}

// More than the kernels and the transport hold, for a rank that comes for it late. What that rank
// goes on sending would be answered with a reset if the other had left, and the reset ends what is
// under way.
inline void expect_that_a_leaving_rank_is_heard(const std::string& transport,
                                                const std::string& job) {
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  fork_ranks(2, [&](int rank) {
    Communicator comm = Communicator::connect(options_of(rank, 2, job, transport));
    Mailbox& mailbox = comm.cached_mailbox({.slots = 1, .slot_bytes = kBytes});
    barrier(comm);
    std::fill_n(mailbox.outbox(1 - rank, 0), kBytes, std::byte{7});
    mailbox.post(1 - rank, 0, {}, kBytes);
    if (rank == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    mailbox.wait_arrived(0, 0, {});
    const std::byte* chunk = mailbox.inbox(0, 0);
    EXPECT_TRUE(std::all_of(chunk, chunk + kBytes, [](std::byte b) { return b == std::byte{7}; }));
    mailbox.release(0, 0);
  });
}

// Rank 0 gives up waiting for rank 1. Both then connect again and again.
inline void connect_after_a_failure(const std::string& transport, const std::string& job) {
  Milestones failed;
  fork_ranks(2, [&](int rank) {
    CommunicatorOptions options = options_of(rank, 2, job, transport);
    if (rank == 0) {
      options.timeout = std::chrono::milliseconds(300);
      expect_error(Code::timeout, [&] { Communicator::connect(options); });
      failed.reach(0);
    } else {
      failed.await(0);
    }
    options.timeout = std::chrono::seconds(20);
    for (int turn = 0; turn < 3; ++turn) {
      Communicator comm = Communicator::connect(options);
      EXPECT_EQ(sum_of_ones(comm), 2);
    }
  });
}

}  // namespace plait
