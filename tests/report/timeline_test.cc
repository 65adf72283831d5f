#include "report/timeline.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace plait::report {
namespace {

using trace::Kind;
using trace::RankRecords;

// A rank that multiplies from 100 to 300 and from 400 to 500, sums from 320 to 360, has a chunk
// under way from 150 to 420, then waits for the others, and multiplies again.
RankRecords busy_rank(int rank) {
  const std::vector<std::string> labels = {"product", "sum", "chunk", "wait", "fused", "barrier"};
  return {.rank = rank,
          .labels = labels,
          .records = {
              {Kind::span, Lane::compute, 0, 0, 100, 300, {.flops = 2000}},
              {Kind::span, Lane::comm, 0, 1, 320, 360, {.bytes = 64, .chunk = 0}},
              {Kind::flight, Lane::comm, 0, 2, 150, 420, {.bytes = 64, .peer = 1, .chunk = 3}},
              {Kind::span, Lane::wait, 0, 3, 360, 400, {}},
              {Kind::span, Lane::compute, 0, 0, 400, 500, {}},
              {Kind::span, Lane::compute, 0, 4, 90, 510, {}},
              {Kind::span, Lane::comm, 0, 5, 520, 880, {}},
              {Kind::span, Lane::compute, 0, 0, 900, 950, {}},
          }};
}

std::vector<Bar> bars_of(const Run& run, Row row) {
  std::vector<Bar> bars;
  for (const Bar& bar : run.bars) {
    if (bar.row == row) bars.push_back(bar);
  }
  return bars;
}

TEST(Timelines, HaveABarForEachThingARankDid) {
  const std::vector<RankRecords> ranks = {busy_rank(0)};
  const auto run = run_of("fused", ranks, {.begin = 100, .end = 600});
  EXPECT_EQ(run.length, 500);
  const auto products = bars_of(run, Row::product);
  ASSERT_EQ(products.size(), 2U);  // not the span around the run, nor what came later
  EXPECT_EQ(products[0].begin, 0);
  EXPECT_EQ(products[0].end, 200);
  ASSERT_EQ(bars_of(run, Row::communication).size(), 1U);
  EXPECT_EQ(bars_of(run, Row::communication)[0].begin, 220);
  ASSERT_EQ(bars_of(run, Row::link).size(), 1U);
  EXPECT_EQ(bars_of(run, Row::link)[0].args.chunk, 3);
  const auto exposed = bars_of(run, Row::exposed);
  ASSERT_EQ(exposed.size(), 2U);  // between the products, and after the last
  EXPECT_EQ(exposed[0].begin, 200);
  EXPECT_EQ(exposed[0].end, 300);
  EXPECT_EQ(exposed[1].begin, 400);
  EXPECT_EQ(exposed[1].end, 500);
  EXPECT_EQ(run.exposed(), 200);
}

TEST(Timelines, CutWhatReachesBeyondTheRun) {
  const std::vector<RankRecords> ranks = {busy_rank(0)};
  const auto run = run_of("part", ranks, {.begin = 200, .end = 250});
  ASSERT_EQ(run.bars.size(), 2U);
  for (const Bar& bar : run.bars) {
    EXPECT_EQ(bar.begin, 0);
    EXPECT_EQ(bar.end, 50);
  }
}

// While its own sums keep a rank from multiplying, it is exposed.
TEST(Timelines, TakeCopiesAndSumsWithinAProductOutOfIt) {
  RankRecords rank = busy_rank(0);
  rank.records.insert(rank.records.begin(),
                      {{Kind::span, Lane::comm, 0, 1, 150, 170, {.bytes = 8}},
                       {Kind::span, Lane::comm, 1, 1, 180, 190, {.bytes = 8}},  // another thread
                       {Kind::span, Lane::comm, 0, 1, 250, 300, {.bytes = 8}}});
  const auto run = run_of("fused", std::vector{rank}, {.begin = 100, .end = 400});
  const auto products = bars_of(run, Row::product);
  ASSERT_EQ(products.size(), 2U);
  EXPECT_EQ(products[0].begin, 0);
  EXPECT_EQ(products[0].end, 50);
  EXPECT_EQ(products[1].begin, 70);
  EXPECT_EQ(products[1].end, 150);
  EXPECT_EQ(run.exposed(), 20 + 150);
  // It multiplies from 100 to 150 and from 170 to 250: 2000 / 130 operations per nanosecond.
  EXPECT_EQ(products[0].args.flops, 769);
  EXPECT_EQ(products[1].args.flops, 1231);
  // A run that begins in the middle of the second part has half of it.
  const auto late = run_of("late", std::vector{rank}, {.begin = 210, .end = 400});
  ASSERT_EQ(bars_of(late, Row::product).size(), 1U);
  EXPECT_EQ(bars_of(late, Row::product)[0].args.flops, 615);
}

TEST(Timelines, FindTheCopiesOfAProductAmongAllOthers) {
  RankRecords rank = {.rank = 0, .labels = {"product", "copy"}};
  for (std::int64_t at = 0; at < 10'000; at += 100) {
    rank.records.push_back({Kind::span, Lane::comm, 0, 1, at + 30, at + 40, {}});
    rank.records.push_back({Kind::span, Lane::compute, 0, 0, at, at + 60, {.flops = 500}});
    rank.records.push_back({Kind::span, Lane::comm, 0, 1, at + 60, at + 90, {}});
  }
  const auto run = run_of("serial", std::vector{rank}, {.begin = 0, .end = 10'000});
  const auto products = bars_of(run, Row::product);
  ASSERT_EQ(products.size(), 200U);
  for (std::size_t i = 0; i < products.size(); ++i) {
    EXPECT_EQ(products[i].end - products[i].begin, i % 2 == 0 ? 30 : 20);
    EXPECT_EQ(products[i].args.flops, i % 2 == 0 ? 300 : 200);
  }
}

}  // namespace
}  // namespace plait::report
