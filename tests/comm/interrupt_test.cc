// A caller ends a wait of its own by CommunicatorOptions::interrupted, as Python does at Ctrl-C.
#include <gtest/gtest.h>
#include <sys/time.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>

#include "comm/milestones.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using conformance::contains;
using conformance::expect_error;
using conformance::fork_ranks;
using conformance::fresh_job;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kUntilAsked{60};

// A wait is to end 0.2 s after it was asked to; this is the patience with a slow, busy machine.
constexpr std::chrono::seconds kPatience{20};

// No std::exception: what is thrown is the caller's own affair.
struct Stopped {};

// Says from a moment on that the wait is to end, and throws once, as PyErr_CheckSignals() does.
class Wish {
 public:
  void wish_at(Clock::time_point at) { at_ = at.time_since_epoch().count(); }
  Clock::time_point at() const { return Clock::time_point(Clock::duration(at_)); }

  std::function<void()> hook() {
    return [this] {
      if (at_ == 0 || Clock::now() < at() || thrown_.exchange(true)) return;
      throw Stopped{};
    };
  }

 private:
  std::atomic<Clock::rep> at_{0};
  std::atomic<bool> thrown_{false};
};

// Expects that the call ends by what the hook throws, and soon.
void expect_stopped(const Wish& wish, const std::function<void()>& call) {
  EXPECT_THROW(call(), Stopped);
  EXPECT_LT(Clock::now() - wish.at(), kPatience);
}

struct Wait {
  const char* name;
  std::function<void(Communicator&)> wait;
};

void PrintTo(const Wait& wait, std::ostream* out) { *out << wait.name; }  // NOLINT: gtest's name

const MailboxDesc kLine = {.slots = 1, .slot_bytes = 8};

const Wait kWaits[] = {
    {"barrier", [](Communicator& comm) { barrier(comm); }},
    {"polling",
     [](Communicator& comm) {
       Pending pending = start_barrier(comm);
       while (!pending.done()) std::this_thread::yield();
     }},
    {"waiting_for_a_pending", [](Communicator& comm) { start_barrier(comm).wait(); }},
    {"mailbox",
     [](Communicator& comm) { comm.cached_mailbox(kLine).wait_arrived(1 - comm.rank(), 0, {}); }},
    {"polling_mailbox",
     [](Communicator& comm) {
       Mailbox& mailbox = comm.cached_mailbox(kLine);
       for (; !mailbox.arrived(1 - comm.rank(), 0, {}); mailbox.progress())
         std::this_thread::yield();
     }},
    {"make_mailbox", [](Communicator& comm) { comm.make_mailbox({.slots = 2, .slot_bytes = 8}); }},
    {"split", [](Communicator& comm) { comm.split(0, 0); }},
};

class EveryInterruption : public testing::TestWithParam<Wait> {
 protected:
  // The rank whose wait ends, and the other one, which is told.
  static void check(Communicator& comm, Wish& wish, Milestones& ended) {
    comm.cached_mailbox(kLine);
    barrier(comm);
    if (comm.rank() == 1) {
      ended.await(0);
    } else {
      wish.wish_at(Clock::now() + kUntilAsked);
      expect_stopped(wish, [&] { GetParam().wait(comm); });
      ended.reach(0);
    }
    const Error error = expect_error(Code::peer_lost, [&] { barrier(comm); });
    EXPECT_EQ(error.culprit(), 0) << error.what();
    EXPECT_TRUE(contains(error.what(), "rank 0 was interrupted")) << error.what();
  }
};

INSTANTIATE_TEST_SUITE_P(Reliability, EveryInterruption, testing::ValuesIn(kWaits),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(EveryInterruption, EndsAThreadsWait) {
  Milestones ended;
  const ThreadGroup group(2);
  std::vector<std::jthread> ranks;
  ranks.reserve(2);
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Wish wish;
      Communicator comm = group.join(rank, {.interrupted = wish.hook()});
      check(comm, wish, ended);
    });
  }
}

TEST_P(EveryInterruption, EndsAProcessesWait) {
  Milestones ended;
  const std::string job = fresh_job();
  fork_ranks(2, [&](int rank) {
    Wish wish;
    Communicator comm = Communicator::connect({.transport = "shm",
                                               .place = Place{.rank = rank, .world = 2, .job = job},
                                               .interrupted = wish.hook()});
    check(comm, wish, ended);
  });
}

// Groups that are split off ask as well, and fail alone.
TEST_P(EveryInterruption, EndsAWaitInASubGroup) {
  Milestones ended;
  const std::string job = fresh_job();
  fork_ranks(2, [&](int rank) {
    Wish wish;
    Communicator whole =
        Communicator::connect({.transport = "shm",
                               .place = Place{.rank = rank, .world = 2, .job = job},
                               .interrupted = wish.hook()});
    std::optional<Communicator> part = whole.split(0, rank);
    check(*part, wish, ended);
    barrier(whole);
  });
}

// A signal's handler runs while the rank sleeps: the hook has its turn soon afterwards.
volatile std::sig_atomic_t g_signals = 0;

TEST(Interruption, FollowsASignal) {
  const std::string job = fresh_job();
  Milestones ended;
  fork_ranks(2, [&](int rank) {
    const auto hook = [] {
      if (g_signals != 0) throw std::runtime_error("the caller's own words");
    };
    Communicator comm = Communicator::connect({.transport = "shm",
                                               .place = Place{.rank = rank, .world = 2, .job = job},
                                               .interrupted = hook});
    if (rank == 1) return ended.await(0);
    struct sigaction action = {};
    action.sa_handler = [](int) { g_signals = 1; };
    ASSERT_EQ(::sigaction(SIGALRM, &action, nullptr), 0);
    const itimerval soon = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = 100'000}};
    const auto begin = Clock::now();
    ASSERT_EQ(::setitimer(ITIMER_REAL, &soon, nullptr), 0);
    try {
      barrier(comm);
      ADD_FAILURE() << "the barrier came to its end";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "the caller's own words");
    }
    EXPECT_LT(Clock::now() - begin, kPatience);
    ended.reach(0);
  });
}

// While ranks find each other: rank 2 never comes.
TEST(Interruption, EndsTheWaitToConnect) {
  for (const int interrupted : {0, 1}) {
    const std::string job = fresh_job();
    Milestones other_waits;
    fork_ranks(2, [&](int rank) {
      Wish wish;
      const CommunicatorOptions options = {.transport = "shm",
                                           .place = Place{.rank = rank, .world = 3, .job = job},
                                           .interrupted = wish.hook()};
      if (rank == interrupted) {
        wish.wish_at(Clock::now() + 5 * kUntilAsked);
        return expect_stopped(wish, [&] { Communicator::connect(options); });
      }
      const Error error = expect_error(Code::peer_lost, [&] { Communicator::connect(options); });
      EXPECT_EQ(error.culprit(), interrupted) << error.what();
    });
  }
}

// What has failed for all is forgotten with its communicator: the ranks connect again.
TEST(Interruption, OfACallKeepsNoRankFromConnectingAgain) {
  for (const bool is_through : {true, false}) {
    Milestones ended;
    constexpr int kRankZeroConnects = 1;
    const std::string job = fresh_job();
    fork_ranks(3, [&](int rank) {
      Wish wish;
      const CommunicatorOptions options = {.transport = "shm",
                                           .place = Place{.rank = rank, .world = 3, .job = job},
                                           .interrupted = wish.hook()};
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
        // Rank 1 has so long to be met by this try, and not by the next one.
        if (!is_through) wish.wish_at(Clock::now() + 20 * kUntilAsked);
        EXPECT_THROW(wait(), Stopped);
        ended.reach(0);
      } else {
        ended.await(kRankZeroConnects);
        const Error error = expect_error(Code::peer_lost, wait);
        EXPECT_EQ(error.culprit(), 0) << error.what();
        ended.reach(0);
      }
      for (int turn = 0; turn < 3; ++turn) {
        Communicator comm = Communicator::connect(options);
        float sum = 1;
        all_reduce({&sum, 1}, comm);
        EXPECT_EQ(sum, 3);
      }
    });
  }
}

TEST(Interruption, EndsTheWaitToJoin) {
  const ThreadGroup group(2);
  Wish wish;
  wish.wish_at(Clock::now() + kUntilAsked);
  expect_stopped(wish, [&] { group.join(0, {.interrupted = wish.hook()}); });
  const Error error = expect_error(Code::peer_lost, [&] { group.join(1); });
  EXPECT_EQ(error.culprit(), 0) << error.what();
}

// A destructor can't throw. The next call says what has happened.
TEST(Interruption, EndsTheWaitOfADestructor) {
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
  EXPECT_LT(Clock::now() - wish.at(), kPatience);
  const Error error = expect_error(Code::peer_lost, [&] { barrier(comm); });
  EXPECT_TRUE(contains(error.what(), "rank 0 was interrupted")) << error.what();
  ended.reach(0);
}

// What is under way in another communicator ends with the call that is interrupted: its destructor
// would wait for a rank that perhaps never comes, and no signal would come again to end that.
TEST(Interruption, WaitsForNoOtherPending) {
  Milestones ended;
  const ThreadGroup group(2);
  const ThreadGroup others(2);
  const std::jthread peer([&] {
    Communicator comm = group.join(1);
    Communicator other = others.join(1);
    ended.await(0);
    const Error error = expect_error(Code::peer_lost, [&] { barrier(other); });
    EXPECT_EQ(error.culprit(), 0) << error.what();
    EXPECT_TRUE(contains(error.what(), "rank 0 was interrupted")) << error.what();
  });
  Wish wish;
  Communicator comm = group.join(0, {.interrupted = wish.hook()});
  Communicator other = others.join(0);
  wish.wish_at(Clock::now() + kUntilAsked);
  expect_stopped(wish, [&] {
    const Pending pending = start_barrier(other);
    barrier(comm);
  });
  ended.reach(0);
}

}  // namespace
}  // namespace plait
