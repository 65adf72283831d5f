#include "trace/collect.h"

#include <gtest/gtest.h>

#include <limits>

namespace plait::trace {
namespace {

// Two ticks take a nanosecond, and tick 1000 is the time 0.
const Scale kScale({.ticks = 1000, .time = 0, .width = 0},
                   {.ticks = 3000, .time = 1000, .width = 0});

Entry span(const char* label, std::uint64_t begin, std::uint64_t end) {
  return {.kind = Kind::span, .lane = Lane::compute, .label = label, .begin = begin, .end = end};
}

Entry flight(std::int64_t begin, std::int64_t end) {
  Entry entry = span("flight", static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end));
  entry.kind = Kind::flight;
  return entry;
}

TEST(Collect, NumbersThreadsByTheirPlaces) {
  const auto all = collect({{.dropped = 2, .entries = {}},
                            {.dropped = 0, .entries = {span("a", 1000, 1000)}},
                            {.dropped = 3, .entries = {span("a", 1000, 1000)}}},
                           kScale, {});
  ASSERT_EQ(all.records.size(), 2U);
  EXPECT_EQ(all.records[0].thread, 1U);
  EXPECT_EQ(all.records[1].thread, 2U);
  EXPECT_EQ(all.dropped, 5);
}

TEST(Collect, ComparesLabelsByTheirText) {
  const std::string product = "product";
  const std::string same = "product";
  ASSERT_NE(product.c_str(), same.c_str());
  const auto all = collect(
      {{.dropped = 0, .entries = {span(product.c_str(), 1000, 1000), span("chunk", 1000, 1000)}},
       {.dropped = 0, .entries = {span(same.c_str(), 1000, 1000)}}},
      kScale, {});
  EXPECT_EQ(all.labels, (std::vector<std::string>{"product", "chunk"}));
  EXPECT_EQ(all.records[0].label, 0U);
  EXPECT_EQ(all.records[1].label, 1U);
  EXPECT_EQ(all.records[2].label, 0U);
}

TEST(Collect, ReadsSpansInTicksAndFlightsInNanoseconds) {
  const auto all =
      collect({{.dropped = 0, .entries = {span("a", 1200, 1400), flight(1200, 1400)}}}, kScale, {});
  EXPECT_EQ(all.records[0].begin, 100);
  EXPECT_EQ(all.records[0].end, 200);
  EXPECT_EQ(all.records[1].begin, 1200);
  EXPECT_EQ(all.records[1].end, 1400);
}

TEST(Collect, AddsTheOffsetThatTheClockHadAtThatTime) {
  const ClockLine clock = {.first = {.nanoseconds = 1000, .uncertainty = 7, .at = 0},
                           .last = {.nanoseconds = 1020, .uncertainty = 5, .at = 200}};
  const auto all =
      collect({{.dropped = 0, .entries = {flight(0, 100), flight(200, 300), flight(-100, 50)}}},
              kScale, clock);
  EXPECT_EQ(all.uncertainty, 7);
  EXPECT_EQ(all.records[0].begin, 1000);
  EXPECT_EQ(all.records[0].end, 1110);
  // Beyond the measurements the offset stays what it was there.
  EXPECT_EQ(all.records[1].begin, 1220);
  EXPECT_EQ(all.records[1].end, 1320);
  EXPECT_EQ(all.records[2].begin, 900);
  EXPECT_EQ(all.records[2].end, 1055);
}

TEST(Collect, KeepsNonsensicalTimesWithinReachAndInOrder) {
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  const ClockLine clock = {.first = {.nanoseconds = kFarthest}, .last = {.nanoseconds = kFarthest}};
  const auto all = collect({{.dropped = 0, .entries = {flight(kLeast, kMost), flight(500, 100)}}},
                           kScale, clock);
  EXPECT_EQ(all.records[0].begin, 0);
  EXPECT_EQ(all.records[0].end, kFarthest);
  EXPECT_EQ(all.records[1].begin, kFarthest);
  EXPECT_EQ(all.records[1].end, kFarthest);
  const auto plain = collect({{.dropped = 0, .entries = {flight(500, 100)}}}, kScale, {});
  EXPECT_EQ(plain.records[0].begin, 500);
  EXPECT_EQ(plain.records[0].end, 500);
}

}  // namespace
}  // namespace plait::trace
