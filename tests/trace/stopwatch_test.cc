#include "trace/stopwatch.h"

#include <gtest/gtest.h>

#include <vector>

namespace plait::trace {
namespace {

class BothStopwatches : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && !base::ticks_are_steady())
      GTEST_SKIP() << "this host's counter is not steady";
  }
};
INSTANTIATE_TEST_SUITE_P(Stopwatch, BothStopwatches, testing::Bool(), [](const auto& is_counter) {
  return is_counter.param ? "Counter" : "Clock";
});

TEST_P(BothStopwatches, NeverGoesBack) {
  const Stopwatch stopwatch(GetParam());
  base::Ticks last = stopwatch.read();
  for (int i = 0; i < 1'000'000; ++i) {
    const base::Ticks next = stopwatch.read();
    ASSERT_GE(next, last);
    last = next;
  }
}

// Each reading lies between two readings of the clock, and so must its time, within the uncertainty
// of the anchors.
TEST_P(BothStopwatches, AgreesWithTheClock) {
  struct Sample {
    base::Nanoseconds before;
    base::Ticks ticks;
    base::Nanoseconds after;
  };
  const Stopwatch stopwatch(GetParam());
  const Anchor from = drop_anchor(stopwatch);
  std::vector<Sample> samples;
  for (const base::Nanoseconds end = base::now() + 50 * base::kMillisecond; base::now() < end;) {
    const base::Nanoseconds before = base::now();
    const base::Ticks ticks = stopwatch.read();
    samples.push_back({.before = before, .ticks = ticks, .after = base::now()});
  }
  const Anchor to = drop_anchor(stopwatch);
  const Scale scale(from, to);

  // A tick may be longer than a nanosecond, but hardly 50 times. The last microsecond allows for
  // the kernel, which may adjust the clock's rate meanwhile.
  const auto doubt =
      static_cast<base::Nanoseconds>(50 * (from.width + to.width)) + base::kMicrosecond;
  for (const Sample& sample : samples) {
    ASSERT_GE(scale.time(sample.ticks), sample.before - doubt);
    ASSERT_LE(scale.time(sample.ticks), sample.after + doubt);
  }
}

TEST(Scale, IsALineThroughItsAnchors) {
  const Scale scale({.ticks = 1000, .time = 50, .width = 0},
                    {.ticks = 4000, .time = 1050, .width = 0});
  EXPECT_EQ(scale.time(1000), 50);
  EXPECT_EQ(scale.time(4000), 1050);
  EXPECT_EQ(scale.time(2500), 550);
  EXPECT_EQ(scale.time(400), -150);
  EXPECT_EQ(scale.time(7000), 2050);
}

TEST(Scale, ReachesFarAndStandsStill) {
  const base::Ticks month = 30ULL * 86400 * 5'000'000'000;
  const base::Nanoseconds time = 30LL * 86400 * base::kSecond;
  const Scale scale({.ticks = 0, .time = 0, .width = 0},
                    {.ticks = month, .time = time, .width = 0});
  EXPECT_EQ(scale.time(month / 2), time / 2);
  const Scale still({.ticks = 9, .time = 7, .width = 0}, {.ticks = 9, .time = 7, .width = 0});
  EXPECT_EQ(still.time(9), 7);
}

}  // namespace
}  // namespace plait::trace
