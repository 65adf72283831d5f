// Losses over UCX: the errors of the other ranks, and UCX's effects on their processes.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/interrupting.h"
#include "comm/milestones.h"
#include "comm/tcp_case.h"
#include "comm/ucx_case.h"
#include "comm/victim.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

using Ucx = TcpCase;

TEST_F(Ucx, NamesAKilledRankLongBeforeTheDeadline) {
  run_with_a_victim({"ucx", job_, SIGKILL, seconds(60)});
}

TEST_F(Ucx, NamesAStoppedRankAtTheDeadline) {
  run_with_a_victim({"ucx", job_, SIGSTOP, milliseconds(1000)});
}

// Chunks are under way in all directions when the rank dies.
void sum_up_until_one_dies(const std::string& job) {
  constexpr int kWorld = 3;
  std::vector<pid_t> children;
  for (int rank = 0; rank < kWorld; ++rank) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    CommunicatorOptions options = options_of(rank, kWorld, job, "ucx");
    options.timeout = seconds(600);
    Communicator comm = Communicator::connect(options);
    std::vector<float> sums(1 << 20);
    const auto start = std::chrono::steady_clock::now();
    expect_error(Code::peer_lost, 1, "rank 1", [&] {
      for (int turn = 0;; ++turn) {
        if (rank == 1 && turn == 20) ::raise(SIGKILL);
        all_reduce({sums.data(), sums.size()}, comm);
      }
    });
    EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(90));
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  for (int rank = 0; rank < kWorld; ++rank) {
    int status = 0;
    ::waitpid(children[rank], &status, 0);
    if (rank != 1) {
      EXPECT_EQ(status, 0) << "rank " << rank;
    }
  }
}

TEST_F(Ucx, SurvivesARankThatDiesInTheMiddleOfChunks) { sum_up_until_one_dies(job_); }

TEST_F(Ucx, SurvivesARankThatDiesWhileItsChunksAreFetched) {
  const Environment environment(
      Environment::Variables{{"PLAIT_RENDEZVOUS", port_.address()}, {"UCX_RNDV_THRESH", "64"}});
  sum_up_until_one_dies(job_);
}

TEST_F(Ucx, SurvivesARankThatDiesWhileItsSlotsAreRead) {
  Environment::Variables variables = through_shared_memory();
  variables.emplace_back("PLAIT_RENDEZVOUS", port_.address());
  const Environment environment(variables);
  sum_up_until_one_dies(job_);
}

TEST_F(Ucx, WhatALeavingRankHasSentIsThereForARankThatComesLate) {
  expect_that_a_leaving_rank_is_heard("ucx", job_);
}

// The sender's part of the agreement goes over a connection, the chunk by UCX, and takes longer.
// Its receiver must not take the sender for one that is in another call.
TEST_F(Ucx, NoAgreementOvertakesAChunk) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const Tag tag = {.operation = Operation::broadcast};
  fork_ranks(2, [&](int rank) {
    Communicator comm = Communicator::connect(options_of(rank, 2, job_, "ucx"));
    Mailbox& mailbox = comm.cached_mailbox({.slots = 1, .slot_bytes = kBytes});
    for (int turn = 0; turn < 3; ++turn) {
      if (rank == 1) {
        mailbox.post(0, 0, tag, kBytes);
      } else {
        mailbox.wait_arrived(1, 0, tag);
        mailbox.release(1, 0);
      }
      EXPECT_TRUE(comm.split(0, 0));
    }
  });
}

// The chunks that a rank has sent are released at the other end, so it has nothing to wait for.
TEST_F(Ucx, LeavesAtOnceBesideARankThatComputes) {
  Milestones left;
  fork_ranks(2, [&](int rank) {
    Communicator comm = Communicator::connect(options_of(rank, 2, job_, "ucx"));
    sum_of_ones(comm);
    barrier(comm);
    if (rank == 1) left.await(0);  // for 40 s at most
    const auto start = std::chrono::steady_clock::now();
    {
      const Communicator gone = std::move(comm);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(20)) << "rank " << rank;
    left.reach(0);
  });
}

TEST_F(Ucx, EveryWaitCanBeInterrupted) {
  for (const Wait& wait : kWaits) expect_that_a_wait_ends("ucx", wait);
}

TEST_F(Ucx, ConnectingCanBeInterrupted) { expect_that_connecting_ends("ucx"); }

// A byte from one process to another.
struct Signal {
  Signal() { EXPECT_EQ(::pipe(ends.data()), 0); }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal() {
    for (const int end : ends) ::close(end);
  }
  void give() const { EXPECT_EQ(::write(ends[1], "x", 1), 1); }
  bool comes_within(seconds time) const {
    pollfd asked = {.fd = ends[0], .events = POLLIN, .revents = 0};
    return ::poll(&asked, 1, static_cast<int>(milliseconds(time).count())) == 1;
  }
  std::array<int, 2> ends;
};

// Another thread of the rank sends a chunk through another group, after this one has begun to
// leave. The other rank receives what was sent before, and the chunk only once the group was left.
TEST_F(Ucx, LeavesAGroupWhileAnotherThreadSendsOn) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;  // it is not here after some looks
  const Signal is_away;  // the other rank, so that it answers no question
  const Signal is_sent;
  const Signal has_left;
  fork_ranks(2, [&](int rank) {
    std::atomic<bool> leaves{false};
    std::atomic<bool> waits{false};
    CommunicatorOptions options = options_of(rank, 2, job_, "ucx");
    options.timeout = seconds(80);
    options.interrupted = [&] { waits = waits || leaves; };
    Communicator comm = Communicator::connect(options);
    std::optional<Communicator> part = comm.split(0, rank);
    const auto mailbox = comm.make_mailbox({.slots = 2, .slot_bytes = kBytes});
    if (rank == 1) {
      mailbox->wait_arrived(0, 0, {});  // and is not released
      is_away.give();
      EXPECT_TRUE(is_sent.comes_within(seconds(60)));
      for (int look = 0; look < 5; ++look) {
        mailbox->arrived(0, 1, {});
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      EXPECT_TRUE(has_left.comes_within(seconds(40)));
      mailbox->wait_arrived(0, 1, {});
      return;
    }
    mailbox->post(1, 0, {}, 1);
    std::thread other([&] {
      const auto end = std::chrono::steady_clock::now() + seconds(60);
      while (!waits && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(milliseconds(1));
      EXPECT_TRUE(waits);
      mailbox->post(1, 1, {}, kBytes);
      is_sent.give();
    });
    EXPECT_TRUE(is_away.comes_within(seconds(60)));
    leaves = true;
    part.reset();
    has_left.give();
    other.join();
  });
}

// Rank 0 stays for a second to tell rank 3, which has not come yet. The others connect again at
// once.
TEST_F(Ucx, RanksThatKnowOfARefusalConnectAgain) {
  Milestones failed;
  fork_ranks(4, [&](int rank) {
    if (rank == 3) {
      failed.await(0);
    } else {
      const std::string wrong = rank == 2 ? "tcp" : "ucx";
      expect_error(Code::mismatch,
                   [&] { Communicator::connect(options_of(rank, 4, job_, wrong)); });
      if (rank == 0) failed.reach(0);
    }
    Communicator comm = Communicator::connect(options_of(rank, 4, job_, "ucx"));
    EXPECT_EQ(sum_of_ones(comm), 4);
  });
}

TEST_F(Ucx, AConnectThatFailedMayBeTriedAgain) { connect_after_a_failure("ucx", job_); }

bool has_handler(int signal) {
  struct sigaction action = {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

constexpr std::array kCrashes = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGHUP};

std::vector<std::string> environment_now() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  std::sort(all.begin(), all.end());
  return all;
}

// The first bytes of mmap(), which UCX would overwrite.
std::string code_of_mmap() {
  const void* mmap = ::dlsym(RTLD_DEFAULT, "mmap");
  return {static_cast<const char*>(mmap), 16};
}

TEST_F(Ucx, LeavesTheHostProgramAsItWas) {
  fork_ranks(2, [&](int rank) {
    std::array<bool, kCrashes.size()> handled = {};  // by a sanitizer
    std::transform(kCrashes.begin(), kCrashes.end(), handled.begin(), has_handler);
    const auto variables = environment_now();
    const std::string code = code_of_mmap();
    Communicator comm = Communicator::connect(options_of(rank, 2, job_, "ucx"));
    EXPECT_EQ(sum_of_ones(comm), 2);
    for (std::size_t i = 0; i < kCrashes.size(); ++i)
      EXPECT_EQ(has_handler(kCrashes[i]), handled[i]) << kCrashes[i];
    EXPECT_EQ(environment_now(), variables);
    EXPECT_EQ(code_of_mmap(), code);
  });
}

TEST_F(Ucx, DoesWhatTheUserHasAskedUcxFor) {
  ::setenv("UCX_HANDLE_ERRORS", "bt", 1);
  fork_ranks(2, [&](int rank) {
    for (const int signal : kCrashes) ::signal(signal, SIG_DFL);
    Communicator comm = Communicator::connect(options_of(rank, 2, job_, "ucx"));
    EXPECT_TRUE(has_handler(SIGSEGV));
    EXPECT_STREQ(std::getenv("UCX_HANDLE_ERRORS"), "bt");
  });
  ::unsetenv("UCX_HANDLE_ERRORS");
}

// A program's worker process ends without disturbing the rank that it was forked from.
TEST_F(Ucx, AForkedChildOfARankMayEnd) {
  fork_ranks(2, [&](int rank) {
    Communicator comm = Communicator::connect(options_of(rank, 2, job_, "ucx"));
    float sum = 1;
    all_reduce({&sum, 1}, comm);
    fork_ranks(1, [&](int) {
      expect_error(Code::invalid_argument, [&] { barrier(comm); });
      {
        const Communicator gone = std::move(comm);
      }
    });
    for (int turn = 0; turn < 10; ++turn) all_reduce({&sum, 1}, comm);
    EXPECT_EQ(sum, 2048);
  });
}

}  // namespace
}  // namespace plait
