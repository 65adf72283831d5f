#include "plait/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <limits>
#include <optional>
#include <set>
#include <thread>

#include "base/clock.h"
#include "plait/error.h"
#include "trace/pack.h"

namespace plait {
namespace {

using trace::Kind;
using trace::RankRecords;
using trace::Record;

RankRecords read(const Trace& trace) { return trace::unpack(trace.pack()); }

std::string label(const RankRecords& all, const Record& record) { return all.labels[record.label]; }

TEST(Span, OffIsNothing) {
  Trace* const off = nullptr;
  Span span(off, Lane::compute, "matmul", {.bytes = 1});
  span.args().flops = 2;
}

TEST(Span, RecordsWhatWhereAndWhen) {
  Trace trace(3);
  const base::Nanoseconds before = base::now();
  {
    Span span(&trace, Lane::comm, "reduce", {.bytes = 4096, .peer = 1, .chunk = 17});
    span.args().flops = 99;
  }
  const base::Nanoseconds after = base::now();
  const RankRecords all = read(trace);
  EXPECT_EQ(all.rank, 3);
  EXPECT_EQ(all.dropped, 0);
  ASSERT_EQ(all.records.size(), 1);
  const Record& record = all.records[0];
  EXPECT_EQ(record.kind, Kind::span);
  EXPECT_EQ(record.lane, Lane::comm);
  EXPECT_EQ(label(all, record), "reduce");
  EXPECT_EQ(record.args.bytes, 4096);
  EXPECT_EQ(record.args.flops, 99);
  EXPECT_EQ(record.args.peer, 1);
  EXPECT_EQ(record.args.chunk, 17);
  // stopwatch_test.cc checks the uncertainty tightly; here only the unit and the origin are
  // checked.
  EXPECT_GE(record.begin, before - base::kSecond);
  EXPECT_LE(record.begin, record.end);
  EXPECT_LE(record.end, after + base::kSecond);
}

TEST(Span, OfOneLaneNest) {
  Trace trace(0);
  for (int i = 0; i < 10'000; ++i) {
    const Span outer(&trace, Lane::compute, "outer");
    {
      const Span inner(&trace, Lane::compute, "inner");
    }
    const Span inner(&trace, Lane::compute, "inner");
  }
  const RankRecords all = read(trace);
  ASSERT_EQ(all.records.size(), 30'000);
  for (std::size_t i = 0; i < all.records.size(); i += 3) {
    const Record& first = all.records[i];
    const Record& second = all.records[i + 1];
    const Record& outer = all.records[i + 2];
    ASSERT_EQ(label(all, outer), "outer");
    ASSERT_LE(outer.begin, first.begin);
    ASSERT_LE(first.end, second.begin);
    ASSERT_LE(second.end, outer.end);
  }
}

TEST(Trace, MarksCountsAndFlights) {
  Trace trace(0);
  trace.mark(Lane::wait, "posted", {.peer = 2});
  trace.count("in flight", -5);
  const base::Nanoseconds begin = base::now();
  trace.flight(Lane::comm, "chunk", {.begin = begin, .end = begin + 1234}, {.chunk = 1});
  const RankRecords all = read(trace);
  ASSERT_EQ(all.records.size(), 3);
  EXPECT_EQ(all.records[0].kind, Kind::mark);
  EXPECT_EQ(all.records[0].lane, Lane::wait);
  EXPECT_EQ(all.records[0].args.peer, 2);
  EXPECT_EQ(all.records[1].kind, Kind::count);
  EXPECT_EQ(all.records[1].args.bytes, -5);
  EXPECT_EQ(all.records[2].kind, Kind::flight);
  EXPECT_EQ(all.records[2].begin, begin);
  EXPECT_EQ(all.records[2].end, begin + 1234);
}

TEST(Trace, NonsenseTimesStayInReach) {
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  Trace trace(0);
  trace.set_clock_offset(trace::kFarthest);
  trace.flight(Lane::comm, "backwards", {.begin = 10, .end = 5});
  trace.flight(Lane::comm, "for ever", {.begin = kMin, .end = kMax});
  const RankRecords all = read(trace);
  ASSERT_EQ(all.records.size(), 2);
  EXPECT_EQ(all.records[0].begin, all.records[0].end);
  EXPECT_LE(all.records[1].begin, all.records[1].end);
}

TEST(Trace, OffsetShiftsTheWholeRank) {
  Trace trace(0);
  trace.flight(Lane::comm, "chunk", {.begin = 1000, .end = 2000});
  trace.set_clock_offset(-700);
  const RankRecords all = read(trace);
  EXPECT_EQ(all.records.at(0).begin, 300);
  EXPECT_EQ(all.records.at(0).end, 1300);
  EXPECT_THROW(trace.set_clock_offset(std::numeric_limits<std::int64_t>::max()), Error);
}

TEST(Trace, DriftIsALineBetweenMeasurements) {
  Trace trace(0);
  constexpr std::int64_t kHour = 3600'000'000'000;
  // This clock loses 18 us in an hour.
  trace.add_clock_offset({.nanoseconds = -5000, .uncertainty = 30, .at = kHour});
  trace.add_clock_offset({.nanoseconds = 4000, .uncertainty = 900, .at = kHour * 3 / 2});
  trace.add_clock_offset({.nanoseconds = 13'000, .uncertainty = 20, .at = 2 * kHour});
  trace.flight(Lane::comm, "between", {.begin = kHour, .end = kHour + kHour / 4});
  trace.flight(Lane::comm, "outside", {.begin = kHour / 2, .end = 3 * kHour});
  const RankRecords all = read(trace);
  EXPECT_EQ(all.records.at(0).begin, kHour - 5000);
  EXPECT_EQ(all.records.at(0).end, kHour + kHour / 4 - 500);
  EXPECT_EQ(all.records.at(1).begin, kHour / 2 - 5000);
  EXPECT_EQ(all.records.at(1).end, 3 * kHour + 13'000);
  EXPECT_EQ(all.uncertainty, 30);
  EXPECT_THROW(trace.add_clock_offset({.nanoseconds = 0, .uncertainty = -1}), Error);
  trace.set_clock_offset(7);
  EXPECT_EQ(read(trace).records.at(0).begin, kHour + 7);
  EXPECT_EQ(read(trace).uncertainty, 0);
}

TEST(Trace, InternedNamesOutliveTheirSource) {
  Trace trace(0);
  const Label name = trace.intern(std::string(1000, 'n'));
  EXPECT_EQ(trace.intern(std::string(1000, 'n')).text(), name.text());
  {
    const Span span(&trace, Lane::compute, name);
  }
  EXPECT_EQ(read(trace).labels.at(0), std::string(1000, 'n'));
}

TEST(Trace, EqualTextIsOneLabel) {
  Trace trace(0);
  trace.mark(Lane::comm, "posted");
  trace.mark(Lane::comm, trace.intern("posted"));
  EXPECT_EQ(read(trace).labels, std::vector<std::string>{"posted"});
}

TEST(Trace, RefusesWhatIsNoTrace) {
  EXPECT_THROW(Trace(-1), Error);
  EXPECT_THROW(Trace(0, 0), Error);
  EXPECT_THROW(Trace(0, std::numeric_limits<std::size_t>::max()), Error);
}

TEST(Trace, FullBuffersKeepTheNewest) {
  Trace trace(0, 15);
  for (std::int64_t i = 0; i < 100; ++i) trace.count("i", i);
  EXPECT_EQ(trace.dropped(), 85);
  const RankRecords all = read(trace);
  EXPECT_EQ(all.dropped, 85);
  ASSERT_EQ(all.records.size(), 15);
  EXPECT_EQ(all.records.front().args.bytes, 85);
  EXPECT_EQ(all.records.back().args.bytes, 99);
}

// More traces than a thread has cached rings, used in turn; and traces that follow one another at
// one address.
TEST(Trace, ThreadsTellTracesApart) {
  std::vector<std::unique_ptr<Trace>> traces;
  traces.reserve(11);
  for (int rank = 0; rank < 11; ++rank) traces.push_back(std::make_unique<Trace>(rank, 63));
  for (int round = 0; round < 5; ++round) {
    for (const auto& trace : traces) trace->count("rank", trace->rank());
  }
  for (const auto& trace : traces) {
    const RankRecords all = read(*trace);
    EXPECT_EQ(all.records.size(), 5);
    for (const Record& record : all.records) EXPECT_EQ(record.args.bytes, all.rank);
  }
  for (int i = 0; i < 100; ++i) {
    std::optional<Trace> trace(std::in_place, i, 1);
    trace->mark(Lane::comm, "posted");
    EXPECT_EQ(read(*trace).records.size(), 1);
  }
}

TEST(Trace, EachThreadHasItsTrack) {
  constexpr int kThreads = 4;
  constexpr int kSpans = 2000;
  Trace trace(0);
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      start.arrive_and_wait();
      for (int i = 0; i < kSpans; ++i) {
        const Span span(&trace, Lane::compute, "work", {.peer = number, .chunk = i});
      }
      start.arrive_and_wait();  // all are alive at once, so all ids are different
    });
  }
  for (std::thread& thread : threads) thread.join();
  const RankRecords all = read(trace);
  ASSERT_EQ(all.records.size(), kThreads * kSpans);
  std::set<int> numbers;
  for (std::size_t i = 0; i < all.records.size(); ++i) {
    const Record& record = all.records[i];
    ASSERT_EQ(record.thread, i / kSpans);
    ASSERT_EQ(record.args.chunk, static_cast<int>(i % kSpans));
    ASSERT_EQ(record.args.peer, all.records[i / kSpans * kSpans].args.peer);
    numbers.insert(record.args.peer);
  }
  EXPECT_EQ(numbers.size(), kThreads);
}

// Threads run one after the other. All records must exist, whether or not thread ids are re-used.
TEST(Trace, ThreadsMayComeAndGo) {
  Trace trace(0, 1023);
  for (int number = 0; number < 200; ++number) {
    std::thread([&] { trace.count("number", number); }).join();
  }
  std::vector<std::int64_t> numbers;
  for (const Record& record : read(trace).records) numbers.push_back(record.args.bytes);
  std::ranges::sort(numbers);
  ASSERT_EQ(numbers.size(), 200);
  for (int number = 0; number < 200; ++number) EXPECT_EQ(numbers[number], number);
}

TEST(Trace, MayBeReadWhileThreadsRecord) {
  Trace trace(0, 255);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int number = 0; number < 3; ++number) {
    threads.emplace_back([&] {
      for (int i = 0; !stop.load(std::memory_order_relaxed); ++i) {
        const Label name = i % 64 == 0 ? trace.intern("name " + std::to_string(i % 1024)) : "fixed";
        const Span span(&trace, Lane::wait, name, {.bytes = i, .flops = i, .peer = i, .chunk = i});
      }
    });
  }
  std::int64_t dropped = 0;
  for (int i = 0; i < 300; ++i) {
    const RankRecords all = read(trace);
    for (const Record& record : all.records) {
      ASSERT_EQ(record.args.bytes, record.args.flops);
      ASSERT_EQ(record.args.bytes, record.args.peer);
      ASSERT_EQ(record.args.bytes, record.args.chunk);
    }
    ASSERT_LE(dropped, all.dropped);
    dropped = all.dropped;
  }
  stop.store(true, std::memory_order_relaxed);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace plait
