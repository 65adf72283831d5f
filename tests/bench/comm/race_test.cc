#include "comm/race.h"

#include <gtest/gtest.h>

#include <string>

#include "plait/error.h"

namespace plait::bench {
namespace {

constexpr Effort kShort = {
    .repetitions = 5, .lasting = 50 * base::kMicrosecond, .patience = 1 * base::kSecond};

TEST(Race, AllRanksGetTheSameResults) {
  std::array<std::vector<Summary>, 2> results;
  run_in_threads(2, [&](Communicator& comm) {
    results.at(comm.rank()) = race(comm, {{"a", [] {}}, {"b", [] {}}}, kShort);
  });
  ASSERT_EQ(results[0].size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(results[0][i].median, results[1][i].median);
    EXPECT_LE(results[0][i].min, results[0][i].median);
    EXPECT_LE(results[0][i].median, results[0][i].max);
    EXPECT_GE(results[0][i].tried, results[0][i].kept);
  }
}

// The time of the slowest rank counts.
TEST(Race, SlowestRankCounts) {
  constexpr Nanoseconds kSlow = 2 * base::kMillisecond;
  run_in_threads(2, [&](Communicator& comm) {
    const auto dawdle = [&] {
      const Nanoseconds end = base::now() + kSlow;
      while (comm.rank() == 1 && base::now() < end) {
      }
    };
    const auto results = race(comm, {{"dawdle", dawdle}}, kShort);
    EXPECT_GE(results[0].min, static_cast<double>(kSlow));
  });
}

// Contenders take turns: a b, b a, a b, ...; prepare() runs before each call if it is given.
TEST(Race, TakesTurnsAndPrepares) {
  run_in_threads(1, [&](Communicator& comm) {
    std::string order;
    int prepared = 0;
    const auto note = [&](char who) {
      if (order.empty() || order.back() != who) order += who;
    };
    const Contender a = {.name = "a",
                         .call =
                             [&] {
                               note('a');
                               --prepared;
                             },
                         .prepare = [&] { ++prepared; }};
    const Contender b = {.name = "b", .call = [&] { note('b'); }};
    race(comm, {a, b}, {.repetitions = 4, .lasting = 1});
    EXPECT_EQ(prepared, 0);
    // One warm-up of each, then turns; two equal neighbours look like one.
    EXPECT_TRUE(order.starts_with("ababab")) << order;
  });
}

TEST(Race, LargestIsThatOfAllRanks) {
  run_in_threads(3, [](Communicator& comm) { EXPECT_EQ(largest(comm, comm.rank() * 1.5), 3.0); });
}

}  // namespace
}  // namespace plait::bench
