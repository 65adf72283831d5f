#include "comm/emulated/link_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace plait::comm {
namespace {

using base::kMicrosecond;
using base::kSecond;
using base::now;

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

TEST(LinkClock, ATransferTakesItsBytesAndTheLatency) {
  LinkClock clock({.bytes_per_second = 1e6, .latency_ns = 500}, 2);
  const auto before = now();
  const auto due = clock.book(1, 1000);  // 1 ms
  EXPECT_GE(due, before + 1'000'000 + 500);
  EXPECT_LE(due, now() + 1'000'000 + 500);
}

TEST(LinkClock, TransfersOfOneDirectionQueue) {
  LinkClock clock({.bytes_per_second = 1e6, .latency_ns = 500}, 2);
  const auto first = clock.book(1, 1'000'000);  // a second each: longer than the calls take
  EXPECT_EQ(clock.book(1, 1'000'000), first + kSecond);
  EXPECT_EQ(clock.book(1, 0), first + kSecond);  // nothing to send: only the queue and the latency
}

TEST(LinkClock, DirectionsDoNotDisturbEachOther) {
  LinkClock clock({.bytes_per_second = 1e6}, 3);
  const auto one = clock.book(1, 10'000'000);
  const auto two = clock.book(2, 10'000'000);
  EXPECT_LT(two, one + kSecond);
}

TEST(LinkClock, WithoutALimitOnlyTheLatencyIsLeft) {
  LinkClock clock({.bytes_per_second = kNoLimit, .latency_ns = 3 * kMicrosecond}, 2);
  clock.book(1, 1'000'000'000);
  const auto before = now();
  const auto due = clock.book(1, 1'000'000'000);
  EXPECT_GE(due, before + 3 * kMicrosecond);
  EXPECT_LE(due, now() + 3 * kMicrosecond);
}

TEST(LinkClock, NoQueueIsLongerThanTheClock) {
  LinkClock clock({.bytes_per_second = 1}, 2);
  for (int times = 0; times < 400; ++times) {
    const auto due = clock.book(1, std::size_t{1} << 40);
    EXPECT_GE(due, now());
    EXPECT_LE(due, now() + 366 * 24 * 3600 * kSecond);
  }
}

TEST(LinkClock, SeveralThreadsShareTheWire) {
  LinkClock clock({.bytes_per_second = 1e6}, 2);
  const auto before = now();
  constexpr int kThreads = 4;
  constexpr int kEach = 1000;
  {
    std::vector<std::jthread> threads;
    threads.reserve(kThreads);
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&] {
        for (int i = 0; i < kEach; ++i) clock.book(1, 1000);
      });
    }
  }
  // No booking was lost: all of them lie behind one another.
  EXPECT_GE(clock.book(1, 0), before + std::int64_t{kThreads} * kEach * 1'000'000);
}

TEST(LinkView, SendsOverTheWorldsLinks) {
  const auto clock = std::make_shared<LinkClock>(Link{.bytes_per_second = 1e6}, 5);
  const LinkView view = {.clock = clock, .ranks = {4, 2}};
  const auto first = view.book(1, 1'000'000);             // to rank 2 of the world
  EXPECT_EQ(clock->book(2, 1'000'000), first + kSecond);  // queues behind it
}

TEST(LinkView, OfAPartNamesItsMembersInTheWorld) {
  const auto clock = std::make_shared<LinkClock>(Link{.bytes_per_second = 1e6}, 5);
  const LinkView whole = {.clock = clock, .ranks = {4, 2, 0, 3}};
  const LinkView part = whole.of({3, 1});
  EXPECT_EQ(part.ranks, (std::vector<int>{3, 2}));
  EXPECT_EQ(part.of({1}).ranks, std::vector<int>{2}) << "a part of a part";
  const auto first = part.book(1, 1'000'000);            // to rank 2 of the world
  EXPECT_EQ(whole.book(1, 1'000'000), first + kSecond);  // the same wire
}

}  // namespace
}  // namespace plait::comm
