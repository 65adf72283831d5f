#include "cli/bench/step_case.h"

#include <gtest/gtest.h>

namespace plait::cli {
namespace {

StepOptions two_layers() {
  StepOptions options;
  options.linears = {{.name = "up", .kind = LinearKind::column, .in = 96, .out = 256},
                     {.name = "down", .kind = LinearKind::row, .in = 256, .out = 96}};
  options.layers = 5;
  options.tokens = 40;
  options.plans = {parse_plan("serial"), parse_plan("pipelined parts=4"), parse_plan("fused")};
  return options;
}

// While the plans race each of them has its own gathered X of every column layer, on every rank.
TEST(StepMemory, CountsWhatEveryPlanKeepsOfEveryLayer) {
  const StepOptions gathers = two_layers();
  StepOptions keeps = gathers;
  keeps.keep_gathered = true;
  EXPECT_DOUBLE_EQ(memory_needed(keeps, 2) - memory_needed(gathers, 2), 5 * 3 * 96 * 40 * 2 * 2);
  keeps.linears[0].in = 97;  // rows of whole cache lines
  StepOptions without = keeps;
  without.keep_gathered = false;
  EXPECT_DOUBLE_EQ(memory_needed(keeps, 3) - memory_needed(without, 3), 5 * 3 * 128 * 40 * 3 * 2);
}

TEST(StepMemory, CountsNothingKeptWhereNothingIsGathered) {
  StepOptions keeps = two_layers();
  keeps.keep_gathered = true;
  StepOptions gathers = two_layers();
  EXPECT_DOUBLE_EQ(memory_needed(keeps, 1), memory_needed(gathers, 1));
  keeps.sequence_parallel = gathers.sequence_parallel = false;
  EXPECT_DOUBLE_EQ(memory_needed(keeps, 2), memory_needed(gathers, 2));
}

}  // namespace
}  // namespace plait::cli
