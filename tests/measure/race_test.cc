#include "measure/race.h"

#include <gtest/gtest.h>

#include <string>

namespace plait::measure {
namespace {

TEST(Race, TakesTurnsInAlternatingOrder) {
  std::string order;
  const std::vector<Contender> contenders = {[&] { order += 'a'; }, [&] { order += 'b'; }};
  const auto times = race(contenders, {.repetitions = 4, .lasting = 0});
  // The first two calls of each are warm-ups.
  EXPECT_EQ(order, "aabbabbaabba");
  ASSERT_EQ(times.size(), 2U);
  for (const Times& one : times) {
    EXPECT_EQ(one.repetitions, 4);
    EXPECT_EQ(one.calls, 1);
    EXPECT_LE(one.min, one.median);
    EXPECT_LE(one.median, one.max);
  }
}

TEST(Race, MakesFiveRepetitionsHoweverLittleTimeThereIs) {
  const auto times = race({[] {}}, {.each = 1, .lasting = 0});
  EXPECT_EQ(times[0].repetitions, 5);
}

TEST(Race, CallsShortThingsManyTimes) {
  std::int64_t calls = 0;
  const auto times = race({[&] { ++calls; }}, {.repetitions = 3, .lasting = base::kMillisecond});
  EXPECT_GT(times[0].calls, 1);
  EXPECT_EQ(calls, 2 + 3 * times[0].calls);
}

TEST(Race, NobodyTakesPart) { EXPECT_TRUE(race({}, {}).empty()); }

TEST(Race, SummarizesInAnyOrder) {
  const Times odd = summarize({3, 1, 2}, 7);
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 3);
  EXPECT_EQ(odd.repetitions, 3);
  EXPECT_EQ(odd.calls, 7);
  EXPECT_EQ(summarize({4, 1, 2, 3}, 1).median, 2.5);
}

}  // namespace
}  // namespace plait::measure
