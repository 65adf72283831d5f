#include "trace/ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace plait::trace {
namespace {

// Every word of a record contains the record's number, so that a torn one is noticed.
Entry entry(std::int64_t number) {
  return {.kind = Kind::span,
          .lane = Lane::comm,
          .label = "x",
          .begin = static_cast<std::uint64_t>(number),
          .end = static_cast<std::uint64_t>(number),
          .args = {.bytes = number,
                   .flops = -number,
                   .peer = static_cast<std::int32_t>(number),
                   .chunk = static_cast<std::int32_t>(-number)}};
}

void expect_run(const Ring::Content& content) {
  auto number = static_cast<std::int64_t>(content.dropped);
  for (const Entry& found : content.entries) {
    ASSERT_EQ(found.begin, number);
    ASSERT_EQ(found.end, number);
    ASSERT_EQ(found.args.bytes, number);
    ASSERT_EQ(found.args.flops, -number);
    ASSERT_EQ(found.args.peer, number);
    ASSERT_EQ(found.args.chunk, -number);
    ASSERT_EQ(found.kind, Kind::span);
    ASSERT_EQ(found.lane, Lane::comm);
    ++number;
  }
}

TEST(Ring, KeepsTheNewestAndCountsTheRest) {
  for (const std::size_t capacity : {1, 3, 7, 8}) {
    Ring ring(capacity, Stopwatch());
    for (std::int64_t pushed = 0; pushed < 40; ++pushed) {
      const auto content = ring.read();
      expect_run(content);
      EXPECT_EQ(content.dropped + content.entries.size(), static_cast<std::uint64_t>(pushed));
      EXPECT_EQ(content.dropped, ring.dropped());
      const std::size_t kept = capacity == 8 ? 15 : capacity;
      EXPECT_EQ(content.entries.size(), std::min<std::size_t>(kept, pushed));
      ring.push(entry(pushed));
    }
  }
}

TEST(Ring, MayBeReadWhileItsOwnerWrites) {
  Ring ring(63, Stopwatch());
  std::atomic<bool> stop{false};
  std::thread owner([&] {
    for (std::int64_t number = 0; !stop.load(std::memory_order_relaxed); ++number) {
      ring.push(entry(number));
    }
  });
  std::uint64_t seen = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto content = ring.read();
    expect_run(content);
    if (testing::Test::HasFatalFailure()) break;
    ASSERT_LE(seen, content.dropped + content.entries.size());
    seen = content.dropped + content.entries.size();
  }
  stop.store(true, std::memory_order_relaxed);
  owner.join();
  expect_run(ring.read());
}

}  // namespace
}  // namespace plait::trace
