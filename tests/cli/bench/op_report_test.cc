#include <gtest/gtest.h>

#include "cli/bench/op_report.h"

namespace plait::cli {
namespace {

constexpr std::size_t kFused = 1;

measure::Times times_of(double median) { return {.median = median, .min = median, .max = median}; }

// A product and a collective of 100 each over a link, and what fused takes beside a serial run of
// 200.
measure::OpMeasurement measured(double fused) {
  measure::OpMeasurement result;
  result.transport = "shm";
  result.link = parse_link("1gbit");
  result.product = times_of(100);
  result.collective = times_of(100);
  result.plans = {{.plan = parse_plan("serial"), .times = times_of(200), .bits_equal = true},
                  {.plan = parse_plan("fused"), .times = times_of(fused), .bits_equal = true}};
  return result;
}

// The efficiency beside the fused run, where the drawn runs took this long.
std::optional<double> drawn(const measure::OpMeasurement& result, std::int64_t serial,
                            std::int64_t fused) {
  OpBenchOptions options;
  options.plans = {parse_plan("serial"), parse_plan("fused")};
  const measure::Recorded recorded = {
      .packs = {}, .ranks = {}, .runs = {{0, serial}, {serial, serial + fused}}, .gaps = {}};
  return timeline_of(options, result, recorded).runs[kFused].efficiency;
}

TEST(OpTimeline, HasTheEfficiencyOfTheDrawnRuns) {
  EXPECT_DOUBLE_EQ(drawn(measured(120), 200, 110).value(), 0.9);
}

TEST(OpTimeline, HasAtMostOne) { EXPECT_DOUBLE_EQ(drawn(measured(120), 200, 95).value(), 1); }

TEST(OpTimeline, HasNoneOfRunsThatAreTooShort) {
  EXPECT_FALSE(drawn(measured(120), 150, 110));
  EXPECT_FALSE(drawn(measured(120), 200, 80));
}

TEST(OpTimeline, HasNoneWhereTheMediansHaveNone) {
  EXPECT_FALSE(drawn(measured(80), 200, 110));
  EXPECT_FALSE(drawn(measured(210), 200, 110));
}

TEST(OpTimeline, HasNoneWhereNothingWasHidden) { EXPECT_FALSE(drawn(measured(120), 200, 210)); }

std::string text_of(const measure::OpMeasurement& result) {
  OpBenchOptions options;
  options.plans = {parse_plan("serial"), parse_plan("fused")};
  return show_text(options, result);
}

// Over a network between hosts, which is not emulated.
measure::OpMeasurement between_hosts(double fused) {
  measure::OpMeasurement result = measured(fused);
  result.transport = "tcp";
  result.link.reset();
  return result;
}

TEST(OpReport, SaysHowMuchIsHiddenUnlessItIsMoreThanPossible) {
  for (const auto& result_of : {measured, between_hosts}) {
    EXPECT_TRUE(text_of(result_of(120))
                    .ends_with("is 1.67 times as fast as serial: it hides 80 % of what can be "
                               "hidden.\n"));
    EXPECT_TRUE(text_of(result_of(98)).ends_with(": it hides 100 % of what can be hidden.\n"));
    EXPECT_TRUE(text_of(result_of(80))
                    .ends_with("is 2.50 times as fast as serial, and faster than is possible\nby "
                               "the times of product and collective alone. Other programs "
                               "disturbed the measurement: repeat it.\n"));
  }
}

TEST(OpReport, ShowsNoShareAboveOne) {
  EXPECT_NE(text_of(measured(98)).find(" 2.041        1.00  equal"), std::string::npos);
  EXPECT_NE(text_of(measured(80)).find(" 2.500       noise  equal"), std::string::npos);
}

TEST(OpReport, KnowsNoiseWhereNoShareCanBeTold) {
  measure::OpMeasurement result = measured(120);
  result.plans.front().times = times_of(264);  // longer than product and collective together
  EXPECT_TRUE(text_of(result).ends_with(" disturbed the measurement: repeat it.\n"));
  result.link.reset();  // in shared memory a plan may save more than it hides
  EXPECT_TRUE(text_of(result).ends_with("is 2.20 times as fast as serial.\n"));
  result.plans.front().times.min = 120;
  EXPECT_TRUE(
      text_of(result).ends_with("is 2.20 times as fast as serial, which may be noise: "
                                "serial took no longer in its fastest run.\n"));
}

}  // namespace
}  // namespace plait::cli
