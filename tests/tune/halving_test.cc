// Who wins, by times that the test makes up.
#include "tune/halving.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace plait::tune {
namespace {

TEST(Halving, FindsTheFastest) {
  for (std::size_t count = 1; count <= 20; ++count) {
    for (std::size_t best = 0; best < count; ++best) {
      std::vector<double> times(count);
      for (std::size_t i = 0; i < count; ++i)
        times[i] = 1e6 * (i == best ? 1.0 : 1.1 + 0.01 * static_cast<double>(i));
      const Outcome outcome = halve(count, base::kSecond, [&](std::size_t i) { return times[i]; });
      EXPECT_EQ(outcome.winner, best);
      EXPECT_DOUBLE_EQ(outcome.nanoseconds, 1e6);
      EXPECT_DOUBLE_EQ(outcome.baseline, times[0]);
    }
  }
}

TEST(Halving, TellsHowMuchIsDoneAndKeepsToItsTime) {
  for (std::size_t count = 1; count <= 20; ++count) {
    double spent = 0;
    std::vector<double> told = {0};
    const auto time = [&](std::size_t /*i*/) {
      spent += 1e6;
      return 1e6;
    };
    halve(count, base::kSecond, time, [&](double part) {
      EXPECT_GT(part, told.back());
      told.push_back(part);
    });
    EXPECT_DOUBLE_EQ(told.back(), 1) << count;
    EXPECT_LE(spent, 1.1e9) << count;
  }
}

TEST(Halving, LeavesItAtTheBaselineWhereNobodyIsClearlyFaster) {
  const auto time = [](std::size_t i) { return i == 0 ? 1e6 : 0.995e6; };
  EXPECT_EQ(halve(6, base::kSecond, time).winner, 0U);
}

// A third of all calls take up to three times as long, and all of them drift slowly.
TEST(Halving, IsNotTakenInByDisturbances) {
  std::mt19937 random(11);
  int found = 0;
  constexpr int kRounds = 50;
  for (int round = 0; round < kRounds; ++round) {
    double drift = 1;
    const auto time = [&](std::size_t i) {
      drift *= 1.001;
      const double own = i == 3 ? 0.8e6 : 1e6 + 2e4 * static_cast<double>(i);
      const bool disturbed = random() % 3 == 0;
      return own * drift * (disturbed ? 1 + static_cast<double>(random() % 200) / 100 : 1);
    };
    if (halve(8, 2 * base::kSecond, time).winner == 3) ++found;
  }
  EXPECT_GT(found, kRounds * 3 / 4);
}

// The machine's speed changes between turns, and the plan is disturbed in two of seven.
TEST(Halving, ReportsTheRatioThatDecided) {
  int calls = 0;
  const auto time = [&](std::size_t i) {
    const int turn = calls++ / 2;
    return (i == 0 ? 1e6 : 0.9e6) * (turn % 3 == 0 ? 1 : 2) * (turn % 5 == 1 && i == 1 ? 3 : 1);
  };
  const Outcome outcome = halve(2, 0, time);
  EXPECT_EQ(outcome.winner, 1U);
  EXPECT_DOUBLE_EQ(outcome.nanoseconds / outcome.baseline, 0.9);
}

TEST(Halving, DoesNotMeasureSlowOnesForLong) {
  std::vector<int> calls(8);
  halve(8, base::kSecond, [&](std::size_t i) {
    ++calls[i];
    return i == 7 ? 1e8 : 1e6;
  });
  EXPECT_LT(calls[7], 6);
  EXPECT_GT(calls[1], 20);
  EXPECT_GT(calls[0], 20);
}

// Two equal contenders with times that scatter by a tenth: sometimes one of them looks faster,
// which does no harm. With the fewest turns this happens one time in six.
TEST(Halving, RarelyTakesChanceForSpeed) {
  std::mt19937 random(7);
  const auto time = [&](std::size_t) {
    return 1e6 * (1 + static_cast<double>(random() % 100) / 1000);
  };
  int others = 0;
  for (int round = 0; round < 200; ++round) others += halve(6, 0, time).winner != 0 ? 1 : 0;
  EXPECT_LT(others, 50);
}

TEST(Ratios, SayWhatIsClear) {
  EXPECT_TRUE(is_clearly_faster({9, 9, 9, 12}, {10, 10, 10, 10}));
  EXPECT_FALSE(is_clearly_faster({9, 9, 9, 12, 12}, {10, 10, 10, 10, 10}));
  EXPECT_FALSE(is_clearly_faster({9.95, 9.95, 9.95}, {10, 10, 10}));
}

TEST(Ratios, AreOfTheSameTurn) {
  // Everything takes ten times as long in the last turns.
  EXPECT_DOUBLE_EQ(compare({5, 50, 50}, {10, 100, 100}), 0.5);
  EXPECT_DOUBLE_EQ(compare({5, 5, 500}, {10, 10, 10}), 0.5);
  // Faster by a tenth in two of three turns, with equal medians.
  EXPECT_DOUBLE_EQ(comparable_time({20, 18, 21.6}, {18, 20, 24}), 18);
  EXPECT_DOUBLE_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
}

}  // namespace
}  // namespace plait::tune
