#include "comm/core/patience.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "comm/session/state.h"
#include "conformance/ranks.h"

namespace plait::comm {
namespace {

constexpr Nanoseconds kMs = base::kMillisecond;
const WaitPolicy kPolicy = {.timeout = 1000 * kMs};

// Asks in turns that count in full.
bool is_over_at(Patience& patience, Nanoseconds from, Nanoseconds at) {
  for (Nanoseconds turn = from; turn < at; turn += 500 * kMs) patience.is_over(turn);
  return patience.is_over(at);
}

TEST(Patience, EndsAtTheDeadline) {
  Patience patience(kPolicy, {}, 0);
  EXPECT_FALSE(patience.is_over(1000 * kMs - 1));
  EXPECT_TRUE(patience.is_over(1000 * kMs));
}

TEST(Patience, PollsPeersSoonAndThenAtIntervals) {
  Patience patience(kPolicy, {.first = 1 * kMs, .between = 10 * kMs}, 0);
  EXPECT_FALSE(patience.must_poll_peers(1 * kMs - 1));
  EXPECT_TRUE(patience.must_poll_peers(1 * kMs));
  EXPECT_FALSE(patience.must_poll_peers(1 * kMs));
  EXPECT_FALSE(patience.must_poll_peers(11 * kMs - 1));
  EXPECT_TRUE(patience.must_poll_peers(50 * kMs)) << "a late poll";
  EXPECT_FALSE(patience.must_poll_peers(60 * kMs - 1)) << "the interval counts from the late poll";
  Patience hasty(kPolicy, kAtOnce, 0);
  EXPECT_TRUE(hasty.must_poll_peers(0));
}

TEST(Patience, WakesForTheNextPollOrTheEnd) {
  Patience patience(kPolicy, {.first = 1 * kMs, .between = 10 * kMs}, 0);
  EXPECT_EQ(patience.wake_at(), 1 * kMs);
  EXPECT_TRUE(patience.must_poll_peers(995 * kMs));
  EXPECT_EQ(patience.wake_at(), 1000 * kMs);
  EXPECT_EQ(patience.poll_peers_at(), 1005 * kMs);
}

TEST(Patience, BeginsAnewWhereSomethingMoves) {
  Patience patience(kPolicy, {}, 0);
  patience.renew(600 * kMs);
  EXPECT_FALSE(patience.is_over(1599 * kMs));
  EXPECT_TRUE(patience.is_over(1600 * kMs));
}

TEST(Patience, BearsUntilWhatIsKnownToCome) {
  Patience patience(kPolicy, {}, 0);
  patience.bear_until(5000 * kMs);
  EXPECT_FALSE(is_over_at(patience, 0, 5999 * kMs));
  patience.bear_until(10 * kMs);  // an earlier time does not shorten it
  EXPECT_FALSE(patience.is_over(5999 * kMs));
  EXPECT_TRUE(patience.is_over(6000 * kMs));
}

// A process that was stopped, with all others perhaps, has waited for a second at most.
TEST(Patience, CountsNoMoreThanASecondOfATurn) {
  const WaitPolicy policy = {.timeout = 5000 * kMs};
  Patience patience(policy, {}, 0);
  EXPECT_FALSE(patience.is_over(500 * kMs));
  EXPECT_FALSE(patience.is_over(100'500 * kMs)) << "1.5 s count";
  EXPECT_FALSE(is_over_at(patience, 100'500 * kMs, 103'999 * kMs));
  EXPECT_TRUE(patience.is_over(104'000 * kMs));
}

TEST(Patience, CountsOnlyPollsInVainAndNoLongComputation) {
  Patience patience(kPolicy, {}, 0);
  patience.note_poll(50 * kMs, true);     // 50 ms count
  patience.note_poll(800 * kMs, true);    // 100 ms of 750 do
  patience.note_poll(5800 * kMs, false);  // none do
  const Nanoseconds counted = 150 * kMs;
  EXPECT_EQ(patience.polled_at(), 5800 * kMs);
  EXPECT_FALSE(patience.is_over(5800 * kMs + 1000 * kMs - counted - 1));
  EXPECT_TRUE(patience.is_over(5800 * kMs + 1000 * kMs - counted));
}

// A group is made with the deadline for connecting, and waits with another one afterwards.
TEST(Patience, FollowsThePolicy) {
  WaitPolicy policy = kPolicy;
  Patience patience(policy, {}, 0);
  policy.timeout = 2000 * kMs;
  patience.renew(0);
  EXPECT_FALSE(is_over_at(patience, 0, 1999 * kMs));
  EXPECT_TRUE(patience.is_over(2000 * kMs));
}

TEST(Patience, AsksAtItsPollsWhetherTheCallerInterrupts) {
  int asked = 0;
  const auto hook = [&] {
    if (++asked > 1) throw std::runtime_error("enough");
  };
  const auto body = [&](Communicator& comm) {
    Group& group = comm.state().group();
    asked = 0;
    Patience patience(group.policy(), {.first = 0, .between = 10 * kMs}, 0);
    EXPECT_TRUE(patience.must_poll_peers(0, group));
    EXPECT_FALSE(patience.must_poll_peers(5 * kMs, group));
    EXPECT_EQ(asked, 1);
    EXPECT_THROW(patience.must_poll_peers(10 * kMs, group), std::runtime_error);
    EXPECT_TRUE(group.was_interrupted());
    EXPECT_TRUE(group.failed());
  };
  run_as_threads(1, body, {.interrupted = hook});
}

}  // namespace
}  // namespace plait::comm
