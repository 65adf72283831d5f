#include "comm/session/thread_guard.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/session/transports.h"
#include "conformance/ranks.h"

namespace plait::comm {
namespace {

class ThreadGuardTest : public testing::Test {
 protected:
  ThreadGuardTest()
      : transport_(select_transport("threads", kSite).create(kSite)),
        membership_(*transport_),
        guard_(membership_) {}

  static inline const Site kSite = {.place = {.rank = 0, .world = 1}};

  std::unique_ptr<Transport> transport_;
  Membership membership_;
  ThreadGuard guard_;
};

TEST_F(ThreadGuardTest, ACallWithinACallIsAllowed) {
  EXPECT_TRUE(guard_.begin());
  EXPECT_FALSE(guard_.begin()) << "not the outermost";
  guard_.end();
  EXPECT_TRUE(guard_.begin());
}

TEST_F(ThreadGuardTest, RefusesASecondThreadUntilTheFirstEnds) {
  ASSERT_TRUE(guard_.begin());
  std::jthread([&] {
    const Error error = expect_error(Code::invalid_argument, [&] { guard_.begin(); });
    EXPECT_STREQ(error.what(),
                 "two threads use this communicator (rank 0 of 1) at once: let one call end before "
                 "the other begins, or give each thread a communicator of its own (split)");
  }).join();
  EXPECT_FALSE(guard_.begin()) << "the first one's call goes on";
  guard_.end();
  std::jthread([&] { EXPECT_TRUE(guard_.begin()); }).join();
}

TEST_F(ThreadGuardTest, MakesNoStepInACall) {
  ASSERT_TRUE(guard_.begin());
  EXPECT_FALSE(guard_.begin_step()) << "by the thread of the call";
  std::jthread([&] { EXPECT_FALSE(guard_.begin_step()); }).join();
  guard_.end();
  ASSERT_TRUE(guard_.begin_step());
  EXPECT_FALSE(guard_.begin_step()) << "nor in another step";
  guard_.end();
}

TEST_F(ThreadGuardTest, ACallWaitsForAnotherThreadsStep) {
  ASSERT_TRUE(guard_.begin_step());
  bool has_ended = false;
  std::jthread caller([&] {
    EXPECT_TRUE(guard_.begin());
    EXPECT_TRUE(has_ended);
    guard_.end();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  has_ended = true;
  guard_.end();
}

// The thread sanitizer tells whether a thread sees what the one before it has written.
TEST_F(ThreadGuardTest, ShowsEachThreadWhatTheOneBeforeHasWritten) {
  constexpr int kRounds = 1000;
  int count = 0;
  const auto add = [&] {
    for (int done = 0; done < kRounds;) {
      try {
        guard_.begin();
      } catch (const Error&) {
        std::this_thread::yield();
        continue;
      }
      ++count;
      ++done;
      guard_.end();
    }
  };
  std::jthread other(add);
  add();
  other.join();
  EXPECT_EQ(count, 2 * kRounds);
}

}  // namespace
}  // namespace plait::comm
