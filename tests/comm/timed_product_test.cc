#include "comm/core/timed_product.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "conformance/await.h"

namespace plait::comm {
namespace {

// It has 1 Mi multiplications and as many additions.
ProductWork product() {
  ProductWork one = {};
  one.rows = 128;
  one.columns = 128;
  one.k = 64;
  one.poll = base::kMillisecond;
  return one;
}

constexpr double kNsPerFlop = 10;

base::Nanoseconds time_alone() {
  return static_cast<base::Nanoseconds>(kNsPerFlop * static_cast<double>(product().flops()));
}

// How long a product takes that polls, in which the first poll sleeps so long. On a busy machine a
// product may be over when its thread wakes for the first time; then another is taken.
base::Nanoseconds time_with_polls(base::Nanoseconds first_poll) {
  base::Nanoseconds time = 0;
  int polls = 0;
  static_cast<void>(await("a product polls", [&] {
    TimedProduct timed(kNsPerFlop);
    const base::Nanoseconds begin = base::now();
    timed.multiply(product(), [&] {
      if (++polls == 1) base::sleep_until(base::now() + first_poll);
    });
    time = base::now() - begin;
    return polls > 0;
  }));
  return time;
}

TEST(TimedProducts, TakeTheTimeThatTheyAreGiven) { EXPECT_GE(time_with_polls(0), time_alone()); }

TEST(TimedProducts, TakeTheTimeOfPollsToo) {
  constexpr base::Nanoseconds kPoll = 30 * base::kMillisecond;
  EXPECT_GE(time_with_polls(kPoll), time_alone() + kPoll);
}

TEST(TimedProducts, AreLeftOutWithATimeOfZero) {
  TimedProduct timed(/*ns_per_flop=*/0);
  int polls = 0;
  timed.multiply(product(), [&] { ++polls; });
  EXPECT_EQ(polls, 0);
}

}  // namespace
}  // namespace plait::comm
