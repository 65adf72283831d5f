#include "measure/link_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <vector>

namespace plait::measure {
namespace {

// The number of tries (at most 20) until the result is within 3 %, if `ratio` is the ratio for a
// given number of seconds per byte.
int tries(double guess, const std::function<double(double)>& ratio) {
  LinkSearch search(guess);
  int count = 0;
  for (; count < 20 && search.off() > 0.03; ++count) search.take(ratio(1 / search.next()));
  return count;
}

TEST(LinkSearch, FindsWhatIsProportionalAtOnce) {
  EXPECT_LE(tries(1e9, [](double seconds) { return seconds * 3e9; }), 3);
  EXPECT_LE(tries(1e9, [](double seconds) { return seconds * 0.2e9; }), 4);
}

// Some of the communication is hidden, and the rest has costs that do not depend on the link.
TEST(LinkSearch, FindsWhatIsHiddenInPart) {
  for (const double hidden : {0.2, 0.9, 2.0, 5.0}) {
    for (const double fixed : {0.0, 0.3, 0.8}) {
      const auto ratio = [&](double seconds) {
        return fixed + std::max(seconds * 1e9 - hidden, 0.05 * seconds * 1e9);
      };
      EXPECT_LE(tries(1e9, ratio), 9) << hidden << ' ' << fixed;
    }
  }
}

TEST(LinkSearch, KeepsTheNearestOfThoseThatWereTried) {
  LinkSearch search(1e9);
  EXPECT_TRUE(std::isinf(search.off()));
  search.take(4);
  search.take(1.2);
  const double third = search.next();
  search.take(0.9);
  search.take(2);  // contradicts the measurements before
  EXPECT_DOUBLE_EQ(search.best(), third);
  EXPECT_NEAR(search.off(), 1 / 0.9 - 1, 1e-12);
}

// If every link is too slow, the search ends with the fastest.
TEST(LinkSearch, EndsWhereNoLinkIsFastEnough) {
  LinkSearch search(1e9);
  for (int turn = 0; turn < 8; ++turn) search.take(1.5 + 1e9 / search.next());
  EXPECT_GT(search.best(), 1e9);
  EXPECT_NEAR(search.off(), 0.5, 0.1);
}

// A link that was close by luck is not the best any more after a second measurement.
TEST(LinkSearch, ForgetsWhatOneMeasurementSaidOfTheNearest) {
  LinkSearch search(1e9);
  search.take(1.01);
  search.take_again(1.6);
  EXPECT_DOUBLE_EQ(search.best(), 1e9);
  EXPECT_NEAR(search.off(), 0.6, 1e-12);
  const double faster = search.next();
  EXPECT_GT(faster, 1e9);
  search.take(0.98);
  EXPECT_DOUBLE_EQ(search.best(), faster);
}

// Settles on a link of 1 GB/s, and records the links tried and the last one. In a race,
// communication takes `slower` times as long as during the search.
struct Settled {
  std::vector<double> tried;
  double last;
};
Settled settle_where(double slower, int most) {
  Settled settled = {};
  const Link first = {.bytes_per_second = 1e9, .latency_ns = 5000};
  settled.last = settle(first, most, [&](const Link& link) -> std::optional<double> {
                   settled.tried.push_back(link.bytes_per_second);
                   const double ratio = slower * 1e9 / link.bytes_per_second;
                   return std::abs(ratio - 1) > 0.1 ? std::optional(ratio) : std::nullopt;
                 }).bytes_per_second;
  return settled;
}

TEST(Settle, KeepsALinkThatIsNotFarOff) {
  EXPECT_EQ(settle_where(1.05, 2).tried, (std::vector<double>{1e9}));
  EXPECT_EQ(settle_where(1.05, 2).last, 1e9);
}

TEST(Settle, CorrectsALinkByWhatTheRaceItselfTook) {
  for (const double slower : {0.5, 1.6}) {
    const Settled settled = settle_where(slower, 2);
    ASSERT_EQ(settled.tried.size(), 2U);
    EXPECT_NEAR(settled.tried[1], slower * 1e9, 0.01e9);
    EXPECT_EQ(settled.last, settled.tried[1]);
  }
}

// The race that is reported is that of the last link.
TEST(Settle, EndsAfterSoManyCorrections) {
  const Settled settled = settle_where(1000, 2);
  ASSERT_EQ(settled.tried.size(), 3U);
  EXPECT_LT(settled.tried[1], settled.tried[2]);
  EXPECT_EQ(settled.last, settled.tried[2]);
}

TEST(Settle, BearsRacesThatCommunicationDidNotLengthen) {
  int races = 0;
  settle({.bytes_per_second = 1e9, .latency_ns = 5000}, 2, [&](const Link& link) {
    EXPECT_TRUE(std::isfinite(link.bytes_per_second) && link.bytes_per_second > 0);
    return std::optional(++races == 1 ? -0.5 : 0.0);
  });
  EXPECT_EQ(races, 3);
}

TEST(LinkSearch, BearsNoise) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> noise(0.9, 1.1);
  for (int round = 0; round < 100; ++round) {
    LinkSearch search(1e9);
    for (int turn = 0; turn < 6 && search.off() > 0.03; ++turn)
      search.take(noise(random) * std::max(4e9 / search.next() - 1, 0.1));
    EXPECT_LT(search.off(), 0.5);
    EXPECT_GT(search.best(), 0);
  }
}

}  // namespace
}  // namespace plait::measure
