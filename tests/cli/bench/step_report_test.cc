// The last sentence of plait bench layer and plait bench model.
#include "cli/bench/step.h"

#include <gtest/gtest.h>

namespace plait::cli {
namespace {

measure::Times step_of(double median) { return {.median = median, .min = median, .max = median}; }

// Products of 1000 and a serial step of 1062: hiding everything gains 6.2 %.
std::string text_of_step(double fused) {
  StepOptions options;
  options.linears = {{.name = "up", .kind = plan::LinearKind::column, .in = 64, .out = 256}};
  options.tokens = 50;
  options.plans = {parse_plan("serial"), parse_plan("fused")};
  measure::StepMeasurement result;
  result.ranks = 1;
  result.transport = "shm";
  result.link = parse_link("1gbit");
  result.products = step_of(1000);
  result.plans = {{.plan = parse_plan("serial"), .times = step_of(1062), .bits_equal = true},
                  {.plan = parse_plan("fused"), .times = step_of(fused), .bits_equal = true}};
  return show_text(options, result);
}

TEST(StepReport, SaysWhichPartOfThePossibleGainWasMade) {
  EXPECT_TRUE(text_of_step(1031).ends_with(
      "\"fused\" gains 3.0 %, which is 48 % of what Amdahl's law allows.\n"))
      << text_of_step(1031);
}

TEST(StepReport, TakesTheErrorOfMediansForAllOfTheGain) {
  EXPECT_TRUE(text_of_step(990).ends_with(
      "\"fused\" gains 7.3 %: it hides all communication, within the medians' error.\n"))
      << text_of_step(990);
}

TEST(StepReport, AsksForARepetitionWhereTheGainIsImpossible) {
  EXPECT_TRUE(text_of_step(708).ends_with(
      "\"fused\" gains 50.0 % where at most 6.2 % is possible.\nOther programs disturbed the "
      "measurement: repeat it.\n"))
      << text_of_step(708);
}

}  // namespace
}  // namespace plait::cli
