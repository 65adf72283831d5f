#include "base/ticks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace plait::base {
namespace {

TEST(Ticks, GoForwardOnAThread) {
  Ticks last = ticks();
  for (int i = 0; i < 1000; ++i) {
    const Ticks next = ticks();
    ASSERT_GE(next, last);
    last = next;
  }
}

TEST(Ticks, GoOnWhileTheThreadSleeps) {
  if (!ticks_are_steady()) GTEST_SKIP() << "this host's counter is not steady";
  const auto ticks_of = [](int milliseconds) {
    const Nanoseconds begin = now();
    const Ticks first = ticks();
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    const auto passed = static_cast<double>(ticks() - first);
    return passed / static_cast<double>(now() - begin);
  };
  // The median, because a thread may lose its processor between two readings.
  std::vector<double> rates;
  for (const int milliseconds : {1, 5, 1, 5, 1, 5, 1}) rates.push_back(ticks_of(milliseconds));
  std::sort(rates.begin(), rates.end());
  EXPECT_GT(rates[3], 0.001);  // a counter of 1 MHz is the slowest there is
  EXPECT_NEAR(rates[2] / rates[4], 1, 0.5);
}

// A thread that was created later, perhaps on another processor, is not earlier.
TEST(Ticks, AgreeBetweenThreads) {
  if (!ticks_are_steady()) GTEST_SKIP() << "this host's counter is not steady";
  for (int i = 0; i < 20; ++i) {
    const Ticks before = ticks();
    Ticks other = 0;
    std::thread([&] { other = ticks(); }).join();
    EXPECT_GE(other, before);
    EXPECT_LE(other, ticks());
  }
}

}  // namespace
}  // namespace plait::base
