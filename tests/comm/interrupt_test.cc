// A caller ends a wait of its own by CommunicatorOptions::interrupted, as Python does at Ctrl-C.
#include <gtest/gtest.h>
#include <sys/time.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "comm/interrupting.h"
#include "comm/tcp_case.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using Interruption = TcpCase;

class EveryInterruption : public TcpCase, public testing::WithParamInterface<Wait> {};

INSTANTIATE_TEST_SUITE_P(Reliability, EveryInterruption, testing::ValuesIn(kWaits),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(EveryInterruption, EndsAThreadsWait) {
  Prompt prompt;
  prompt.expect([&] {
    Milestones ended;
    const ThreadGroup group(2);
    std::vector<std::jthread> ranks;
    ranks.reserve(2);
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        Wish wish;
        Communicator comm = group.join(rank, {.interrupted = wish.hook()});
        interrupt(comm, GetParam(), wish, prompt, ended);
      });
    }
  });
}

TEST_P(EveryInterruption, EndsAProcessesWait) {
  for (const char* transport : {"shm", "tcp"}) expect_that_a_wait_ends(transport, GetParam());
}

// Groups that are split off ask as well, and fail alone.
TEST_P(EveryInterruption, EndsAWaitInASubGroup) {
  Prompt prompt;
  prompt.expect([&] {
    Milestones ended;
    const std::string job = fresh_job();
    fork_ranks(2, [&](int rank) {
      Wish wish;
      Communicator whole =
          Communicator::connect({.transport = "shm",
                                 .place = Place{.rank = rank, .world = 2, .job = job},
                                 .interrupted = wish.hook()});
      std::optional<Communicator> part = whole.split(0, rank);
      interrupt(*part, GetParam(), wish, prompt, ended);
      barrier(whole);
    });
  });
}

// A signal's handler runs while the rank sleeps: the hook has its turn soon afterwards.
volatile std::sig_atomic_t g_signals = 0;
constexpr std::chrono::milliseconds kUntilSignal{100};

TEST_F(Interruption, FollowsASignal) {
  Prompt prompt;
  prompt.expect([&] {
    const std::string job = fresh_job();
    Milestones ended;
    fork_ranks(2, [&](int rank) {
      const auto hook = [] {
        if (g_signals != 0) throw std::runtime_error("the caller's own words");
      };
      Communicator comm =
          Communicator::connect({.transport = "shm",
                                 .place = Place{.rank = rank, .world = 2, .job = job},
                                 .interrupted = hook});
      if (rank == 1) return ended.await(0);
      struct sigaction action = {};
      action.sa_handler = [](int) { g_signals = 1; };
      ASSERT_EQ(::sigaction(SIGALRM, &action, nullptr), 0);
      const itimerval soon = {
          .it_interval = {},
          .it_value = {.tv_sec = 0, .tv_usec = std::chrono::microseconds(kUntilSignal).count()}};
      const auto begin = Clock::now();
      ASSERT_EQ(::setitimer(ITIMER_REAL, &soon, nullptr), 0);
      try {
        barrier(comm);
        ADD_FAILURE() << "the barrier came to its end";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "the caller's own words");
      }
      prompt.took(Clock::now() - begin - kUntilSignal);
      ended.reach(0);
    });
  });
}

TEST_F(Interruption, EndsTheWaitToConnect) {
  for (const char* transport : {"shm", "tcp"}) expect_that_connecting_ends(transport);
}

TEST_F(Interruption, EndsTheWaitToConnectWithASecret) {
  environment_.set("PLAIT_SECRET", "a secret that all ranks of the job know");
  expect_that_connecting_ends("tcp");
}

std::string case_of(const std::string& transport, int interrupted) {
  return transport + ", rank " + std::to_string(interrupted);
}

// Before it has a connection to any rank: the others find that it listens no more, or misses.
TEST_F(Interruption, AtOnceEndsAMeetingThroughAnAllGather) {
  for (const char* transport : {"shm", "tcp"}) {
    for (const int interrupted : {0, 1, 2}) {
      SCOPED_TRACE(case_of(transport, interrupted));
      const Store store(3);
      fork_ranks(3, [&](int rank) {
        CommunicatorOptions options = options_of(rank, 3, job_, transport);
        options.all_gather = store.all_gather(rank);
        if (rank == interrupted) options.interrupted = [] { throw Stopped{}; };
        const auto connect = [&] { Communicator::connect(options); };
        if (rank == interrupted) {
          EXPECT_THROW(connect(), Stopped);
        } else {
          expect_error(Code::peer_lost, interrupted, connect);
        }
      });
    }
  }
}

// Ranks 0 and 1 have met. Rank 2 has told where it is, and comes when they have ended.
TEST_F(Interruption, EndsAMeetingThroughAnAllGather) {
  for (const char* transport : {"shm", "tcp"}) {
    for (const int interrupted : {0, 1}) {
      SCOPED_TRACE(case_of(transport, interrupted));
      const Store store(3);
      MeetingProgress meeting;
      Milestones ended;
      fork_ranks(3, [&](int rank) {
        CommunicatorOptions options = options_of(rank, 3, job_, transport);
        options.all_gather = [&, gather = store.all_gather(rank)](const std::string& mine) {
          auto all = gather(mine);
          if (rank == 2) ended.await(0, 2);
          return all;
        };
        int asked = 0;
        options.interrupted = [&] {
          const bool is_met = rank < 2 && meeting.have_met(rank, asked);
          if (rank == interrupted && is_met) throw Stopped{};
        };
        const auto connect = [&] { Communicator::connect(options); };
        if (rank == interrupted) {
          EXPECT_THROW(connect(), Stopped);
        } else {
          const Error error = expect_error(Code::peer_lost, connect);
          EXPECT_TRUE(rank == 2 || error.culprit() == interrupted) << error.what();
        }
        ended.reach(0);
      });
    }
  }
}

// Rank 0 has met all and told them so, and rank 2 waits for an answer of rank 1, which its hook
// holds until the others have ended.
TEST_F(Interruption, EndsAMeetingInWhichRanksConnectToEachOther) {
  constexpr int kRankZeroListens = 0;
  constexpr int kIsHeld = 1;
  constexpr int kRankTwoWaits = 2;
  constexpr int kEnded = 3;
  constexpr int kLong = 50;  // turns, in which ranks that listen have met
  for (const int interrupted : {0, 2}) {
    SCOPED_TRACE(case_of("tcp", interrupted));
    Milestones reached;
    fork_ranks(3, [&](int rank) {
      CommunicatorOptions options = options_of(rank, 3, job_);
      int asked = 0;
      options.interrupted = [&] {
        ++asked;
        if (rank == 0 && asked == 1) reached.reach(kRankZeroListens);
        if (rank == 1 && asked == kLong) {
          reached.reach(kIsHeld);
          reached.await(kEnded, 2);
          EXPECT_EQ(reached.reached(kEnded), 2) << "not all have heard of it";
        }
        if (rank == 2 && asked == kLong) reached.reach(kRankTwoWaits);
        if (rank == interrupted && reached.reached(kRankTwoWaits) > 0) throw Stopped{};
      };
      if (rank == 1) reached.await(kRankZeroListens);
      if (rank == 2) reached.await(kIsHeld);
      const auto connect = [&] { Communicator::connect(options); };
      if (rank == interrupted) {
        EXPECT_THROW(connect(), Stopped);
      } else {
        expect_error(Code::peer_lost, interrupted, "was interrupted", connect);
      }
      reached.reach(kEnded);
    });
  }
}

// A failure is forgotten with its communicator: the ranks connect again.
TEST_F(Interruption, OfACallKeepsNoRankFromConnectingAgain) {
  for (const bool is_through : {true, false}) {
    Milestones ended;
    MeetingProgress meeting;
    constexpr int kRankZeroConnects = 1;
    const std::string job = fresh_job();
    fork_ranks(3, [&](int rank) {
      Wish wish;
      int asked = 0;
      const auto hook = [&, stop = wish.hook()] {
        // Rank 1 has been met by this try of rank 0, and not by the next one.
        const bool is_met = rank < 2 && !is_through && meeting.have_met(rank, asked);
        if (is_met && rank == 0 && wish.at() == Clock::time_point()) wish.wish_at(Clock::now());
        stop();
      };
      const CommunicatorOptions options = {.transport = "shm",
                                           .place = Place{.rank = rank, .world = 3, .job = job},
                                           .interrupted = hook};
      const auto wait = [&] {
        Communicator comm = Communicator::connect(options);
        // Rank 2 doesn't come to the barrier.
        if (rank == 2) return ended.await(0, 2);
        if (rank == 0) wish.wish_at(Clock::now() + kUntilAsked);
        barrier(comm);
      };
      // Or rank 2 doesn't even connect.
      if (rank == 2 && !is_through) {
        ended.await(0, 2);
      } else if (rank == 2) {
        wait();
      } else if (rank == 0) {
        ended.reach(kRankZeroConnects);
        EXPECT_THROW(wait(), Stopped);
        ended.reach(0);
      } else {
        ended.await(kRankZeroConnects);
        expect_error(Code::peer_lost, 0, wait);
        ended.reach(0);
      }
      for (int turn = 0; turn < 3; ++turn) {
        Communicator comm = Communicator::connect(options);
        EXPECT_EQ(sum_of_ones(comm), 3);
      }
    });
  }
}

TEST_F(Interruption, EndsTheWaitToJoin) {
  Prompt prompt;
  prompt.expect([&] {
    const ThreadGroup group(2);
    Wish wish;
    wish.wish_at(Clock::now() + kUntilAsked);
    expect_stopped(wish, prompt, [&] { group.join(0, {.interrupted = wish.hook()}); });
    expect_error(Code::peer_lost, 0, [&] { group.join(1); });
  });
}

// A destructor can't throw. The next call says what has happened.
TEST_F(Interruption, EndsTheWaitOfADestructor) {
  Prompt prompt;
  prompt.expect([&] {
    Milestones ended;
    const ThreadGroup group(2);
    const std::jthread other([&] {
      const Communicator comm = group.join(1);
      ended.await(0);
    });
    Wish wish;
    Communicator comm = group.join(0, {.interrupted = wish.hook()});
    wish.wish_at(Clock::now() + kUntilAsked);
    {
      const Pending pending = start_barrier(comm);
    }
    prompt.took(Clock::now() - wish.at());
    expect_error(Code::peer_lost, "rank 0 was interrupted", [&] { barrier(comm); });
    ended.reach(0);
  });
}

// A collective under way in another communicator ends with the call that is interrupted: its
// destructor would wait for a rank that perhaps never comes, and no signal would come again to end
// that.
TEST_F(Interruption, WaitsForNoOtherPending) {
  Prompt prompt;
  prompt.expect([&] {
    Milestones ended;
    const ThreadGroup group(2);
    const ThreadGroup others(2);
    const std::jthread peer([&] {
      Communicator comm = group.join(1);
      Communicator other = others.join(1);
      ended.await(0);
      expect_error(Code::peer_lost, 0, "rank 0 was interrupted", [&] { barrier(other); });
    });
    Wish wish;
    Communicator comm = group.join(0, {.interrupted = wish.hook()});
    Communicator other = others.join(0);
    wish.wish_at(Clock::now() + kUntilAsked);
    expect_stopped(wish, prompt, [&] {
      const Pending pending = start_barrier(other);
      barrier(comm);
    });
    ended.reach(0);
  });
}

}  // namespace
}  // namespace plait
