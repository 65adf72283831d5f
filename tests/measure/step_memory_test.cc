#include "measure/step_memory.h"

#include <gtest/gtest.h>

#include "measure/step_case.h"
#include "conformance/ranks.h"

namespace plait::measure {
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

// During the race each plan has its own gathered X of every column layer, on every rank.
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

// The estimate includes what every plan's communicator holds after a step, but is not many times
// larger.
TEST(StepMemory, CountsWhatEveryPlansCommunicatorHolds) {
  StepOptions options = two_layers();
  options.linears = {{.name = "up", .kind = LinearKind::column, .in = 256, .out = 1024},
                     {.name = "down", .kind = LinearKind::row, .in = 1024, .out = 256}};
  options.layers = 1;
  options.tokens = 512;
  options.threads = 1;
  for (const char* plan :
       {"serial", "pipelined parts=2", "pipelined parts=8", "fused", "fused chunk=1024"}) {
    for (const bool shards : {true, false}) {
      for (const bool operators : {true, false}) {
        options.plans = {parse_plan(plan)};
        options.sequence_parallel = shards;
        options.column_backward = operators;
        StepOptions none = options;
        none.plans.clear();
        conformance::run_as_threads(
            2,
            [&](Communicator& comm) {
              const StepCase one(options, comm);
              one.runner(options.plans.front(), comm)->run(0);
              const LinearMemory memory = linear_memory(comm);
              const auto held =
                  static_cast<double>(memory.mailboxes + memory.operators + memory.workspace);
              const double counted = (memory_needed(options, 2) - memory_needed(none, 2)) / 2;
              EXPECT_GE(counted, held) << plan << ' ' << shards << ' ' << operators;
              EXPECT_LE(counted, 4 * held) << plan << ' ' << shards << ' ' << operators;
            },
            {});
      }
    }
  }
}

}  // namespace
}  // namespace plait::measure
