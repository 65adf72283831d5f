#include "comm/timed_product.h"

#include <gtest/gtest.h>

#include "base/clock.h"

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

TEST(TimedProducts, TakeTheTimeThatTheyAreGiven) {
  TimedProduct timed(/*ns_per_flop=*/10);
  int polls = 0;
  const base::Nanoseconds begin = base::now();
  timed.multiply(product(), [&] { ++polls; });
  EXPECT_GE(base::now() - begin, static_cast<base::Nanoseconds>(10 * product().flops()));
  EXPECT_GE(polls, 1);
}

TEST(TimedProducts, TakeTheTimeOfPollsToo) {
  TimedProduct timed(/*ns_per_flop=*/10);
  bool polled = false;
  const base::Nanoseconds begin = base::now();
  timed.multiply(product(), [&] {
    if (polled) return;
    polled = true;
    base::sleep_until(base::now() + 30 * base::kMillisecond);
  });
  const auto alone = static_cast<base::Nanoseconds>(10 * product().flops());
  EXPECT_GE(base::now() - begin, alone + 30 * base::kMillisecond);
}

TEST(TimedProducts, AreLeftOutWithATimeOfZero) {
  TimedProduct timed(/*ns_per_flop=*/0);
  int polls = 0;
  timed.multiply(product(), [&] { ++polls; });
  EXPECT_EQ(polls, 0);
}

}  // namespace
}  // namespace plait::comm
