#include "measure/step_memory.h"

#include <gtest/gtest.h>

#include "conformance/ranks.h"
#include "measure/step_case.h"

namespace plait::measure {
namespace {

StepSetup two_layers() {
  StepSetup setup;
  setup.linears = {{.name = "up", .kind = LinearKind::column, .in = 96, .out = 256},
                   {.name = "down", .kind = LinearKind::row, .in = 256, .out = 96}};
  setup.layers = 5;
  setup.tokens = 40;
  setup.plans = {parse_plan("serial"), parse_plan("pipelined parts=4"), parse_plan("fused")};
  return setup;
}

// During the race each plan has its own gathered X of every column layer, on every rank.
TEST(StepMemory, CountsWhatEveryPlanKeepsOfEveryLayer) {
  const StepSetup gathers = two_layers();
  StepSetup keeps = gathers;
  keeps.keep_gathered = true;
  EXPECT_DOUBLE_EQ(memory_needed(keeps, 2) - memory_needed(gathers, 2), 5 * 3 * 96 * 40 * 2 * 2);
  keeps.linears[0].in = 97;  // rows of whole cache lines
  StepSetup without = keeps;
  without.keep_gathered = false;
  EXPECT_DOUBLE_EQ(memory_needed(keeps, 3) - memory_needed(without, 3), 5 * 3 * 128 * 40 * 3 * 2);
}

TEST(StepMemory, CountsNothingKeptWhereNothingIsGathered) {
  StepSetup keeps = two_layers();
  keeps.keep_gathered = true;
  StepSetup gathers = two_layers();
  EXPECT_DOUBLE_EQ(memory_needed(keeps, 1), memory_needed(gathers, 1));
  keeps.sequence_parallel = gathers.sequence_parallel = false;
  EXPECT_DOUBLE_EQ(memory_needed(keeps, 2), memory_needed(gathers, 2));
}

// The estimate includes what every plan's communicator holds after a step, but is not many times
// larger.
TEST(StepMemory, CountsWhatEveryPlansCommunicatorHolds) {
  StepSetup setup = two_layers();
  setup.linears = {{.name = "up", .kind = LinearKind::column, .in = 256, .out = 1024},
                   {.name = "down", .kind = LinearKind::row, .in = 1024, .out = 256}};
  setup.layers = 1;
  setup.tokens = 512;
  setup.threads = 1;
  for (const char* plan :
       {"serial", "pipelined parts=2", "pipelined parts=8", "fused", "fused chunk=1024"}) {
    for (const bool shards : {true, false}) {
      for (const bool operators : {true, false}) {
        setup.plans = {parse_plan(plan)};
        setup.sequence_parallel = shards;
        setup.column_backward = operators;
        StepSetup none = setup;
        none.plans.clear();
        conformance::run_as_threads(
            2,
            [&](Communicator& comm) {
              const StepCase one(setup, comm);
              one.runner(setup.plans.front(), comm)->run(0);
              const LinearMemory memory = linear_memory(comm);
              const auto held =
                  static_cast<double>(memory.mailboxes + memory.operators + memory.workspace);
              const double counted = (memory_needed(setup, 2) - memory_needed(none, 2)) / 2;
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
