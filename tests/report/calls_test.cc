// How calls of operators spent their time (report/calls.h).
#include "report/calls.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "report/page.h"

namespace plait::report {
namespace {

using trace::Kind;
using trace::RankRecords;

// Two calls of one problem, one of another, and one that ended in an error; between them a
// collective of the program itself.
RankRecords rank_with_calls(int rank) {
  return {.rank = rank,
          .labels = {"call op=a m=1", "call op=b m=2", "return", "product", "sum", "chunk", "wait",
                     "all_gather", "all_reduce"},
          .records = {
              {Kind::mark, Lane::compute, 0, 0, 100, 100, {}},
              {Kind::span, Lane::compute, 0, 3, 110, 150, {}},
              {Kind::flight, Lane::comm, 0, 5, 130, 170, {}},
              {Kind::span, Lane::wait, 0, 6, 160, 180, {}},
              {Kind::span, Lane::comm, 0, 4, 180, 195, {}},
              {Kind::mark, Lane::compute, 0, 2, 200, 200, {}},
              {Kind::span, Lane::comm, 0, 7, 210, 280, {}},
              {Kind::span, Lane::wait, 0, 6, 220, 270, {}},
              {Kind::mark, Lane::compute, 0, 0, 300, 300, {}},
              {Kind::span, Lane::compute, 0, 3, 300, 340, {}},
              {Kind::mark, Lane::compute, 0, 2, 350, 350, {}},
              {Kind::mark, Lane::compute, 0, 1, 400, 400, {}},  // ended in an error
              {Kind::mark, Lane::compute, 0, 1, 500, 500, {}},
              {Kind::span, Lane::compute, 0, 3, 500, 900, {}},
              {Kind::span, Lane::compute, 1, 3, 600, 950, {}},  // on another thread
              {Kind::mark, Lane::compute, 0, 2, 960, 960, {}},
              {Kind::flight, Lane::comm, 0, 8, 700, 750, {}},
          }};
}

TEST(Calls, AreAddedUpByProblem) {
  const std::vector<Calls> calls = calls_of(rank_with_calls(0));
  ASSERT_EQ(calls.size(), 4U);
  EXPECT_EQ(calls[0].problem, "op=b m=2");
  EXPECT_EQ(calls[0].count, 1);
  EXPECT_EQ(calls[0].time, 460);
  EXPECT_EQ(calls[0].multiplying, 450);
  EXPECT_EQ(calls[0].communication, 50);
  const Calls& a = calls[1];
  EXPECT_EQ(a.problem, "op=a m=1");
  EXPECT_EQ(a.count, 2);
  EXPECT_EQ(a.time, 150);
  EXPECT_EQ(a.multiplying, 80);
  EXPECT_EQ(a.communicating, 15);
  EXPECT_EQ(a.waiting, 20);        // the collective's wait is not the call's
  EXPECT_EQ(a.communication, 65);  // from 130 to 195
  EXPECT_EQ(a.hidden, 20);         // from 130 to 150
  EXPECT_EQ(calls[2].problem, "all_gather");
  EXPECT_EQ(calls[2].time, 70);
  EXPECT_EQ(calls[2].waiting, 50);
  EXPECT_EQ(calls[2].hidden, 0);
  EXPECT_EQ(calls[3].problem, "all_reduce");  // started, with a product meanwhile
  EXPECT_EQ(calls[3].time, 50);
  EXPECT_EQ(calls[3].communication, 50);
  EXPECT_EQ(calls[3].hidden, 50);
}

TEST(Calls, OutsideOfIntervalsAreLeftOut) {
  const std::vector<TimeInterval> within = {{.begin = 90, .end = 200}, {.begin = 205, .end = 340}};
  const std::vector<Calls> calls = calls_of(rank_with_calls(0), within);
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0].problem, "op=a m=1");  // the first one; the second ends later than an interval
  EXPECT_EQ(calls[0].count, 1);
  EXPECT_EQ(calls[0].time, 100);
  EXPECT_EQ(calls[1].problem, "all_gather");
  EXPECT_EQ(calls[1].waiting, 50);
  EXPECT_TRUE(calls_of(rank_with_calls(0), {}).empty());
}

// A sum within a wait does not count as waiting.
TEST(Calls, GiveAMomentToTheInnermost) {
  const RankRecords rank = {.rank = 0,
                            .labels = {"call op=a m=1", "return", "wait", "sum"},
                            .records = {
                                {Kind::mark, Lane::compute, 0, 0, 100, 100, {}},
                                {Kind::span, Lane::wait, 0, 2, 110, 190, {}},
                                {Kind::span, Lane::comm, 0, 3, 120, 130, {}},
                                {Kind::span, Lane::comm, 0, 3, 150, 170, {}},
                                {Kind::mark, Lane::compute, 0, 1, 200, 200, {}},
                            }};
  const std::vector<Calls> calls = calls_of(rank);
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].waiting, 50);
  EXPECT_EQ(calls[0].communicating, 30);
}

// Experts, and a product of a shared expert beside them.
TEST(Calls, MayContainOthers) {
  const RankRecords rank = {.rank = 0,
                            .labels = {"call experts m=1", "call op=a m=1", "return"},
                            .records = {
                                {Kind::mark, Lane::compute, 0, 0, 100, 100, {}},
                                {Kind::mark, Lane::compute, 0, 1, 120, 120, {}},
                                {Kind::mark, Lane::compute, 0, 2, 150, 150, {}},
                                {Kind::mark, Lane::compute, 0, 2, 200, 200, {}},
                            }};
  const std::vector<Calls> calls = calls_of(rank);
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0].problem, "experts m=1");
  EXPECT_EQ(calls[0].time, 100);
  EXPECT_EQ(calls[1].problem, "op=a m=1");
  EXPECT_EQ(calls[1].time, 30);
}

TEST(Calls, AloneAreExposed) {
  const std::vector<RankRecords> ranks = {rank_with_calls(0), rank_with_calls(1)};
  const report::Run run = run_of_calls("a program", ranks);
  EXPECT_EQ(run.length, 860);
  EXPECT_EQ(run.exposed(), 10 + 50 + 10 + 10);  // in calls, while no thread multiplies
  const std::string html =
      page({.title = "a", .subtitle = "b", .product = 0, .collective = 0, .runs = {run}});
  EXPECT_EQ(html.find("ideal:"), std::string::npos);
  EXPECT_NE(html.find("a program: 860 ns"), std::string::npos);
}

TEST(Calls, OfNoRecordsAreNone) {
  EXPECT_TRUE(calls_of({}).empty());
  EXPECT_EQ(run_of_calls("nothing", {}).length, 0);
}

}  // namespace
}  // namespace plait::report
