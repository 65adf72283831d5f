#include "measure/op_memory.h"

#include <gtest/gtest.h>

#include <vector>

#include "conformance/ranks.h"
#include "ops/problem.h"

namespace plait::measure {
namespace {

// The whole problem, of which each of two ranks has `problem`.
PlanKey key_of(const OpProblem& problem, std::int64_t k, bool plain) {
  const OperatorTraits& traits = traits_of(problem.op);
  return {.op = problem.op,
          .m = problem.m,
          .n = traits.shares_n ? 2 * problem.n : problem.n,
          .k = traits.shares_k ? 2 * k : k,
          .weight = plain ? "bf16:plain" : "bf16",
          .world = 2,
          .threads = 1};
}

// The estimate includes what every plan holds after running, but is not many times larger.
TEST(OpMemory, CountsWhatAllPlansKeep) {
  constexpr std::int64_t kN = 640;
  constexpr std::int64_t kK = 512;
  const std::vector<const char*> most = {"serial", "pipelined parts=2", "pipelined parts=4",
                                         "pipelined parts=8", "fused"};
  const std::vector<const char*> few(most.begin(), most.end() - 1);
  for (int number = static_cast<int>(Operator::matmul) + 1; number < kOperators; ++number) {
    for (const bool plain : {true, false}) {
      conformance::run_as_threads(
          2,
          [&](Communicator& comm) {
            const OpProblem problem(static_cast<Operator>(number), 512, comm, kN, kK);
            const OpDesc desc = plain ? problem.plain_desc() : problem.desc();
            const OpCall call = plain ? problem.plain_call() : problem.call();
            std::vector<Op> prepared;
            double held = 0;
            const auto& plans =
                has_schedule(static_cast<Operator>(number), Schedule::fused) ? most : few;
            for (const char* plan : plans) {
              prepared.push_back(prepare(desc, comm, {.plan = parse_plan(plan), .threads = 1}));
              prepared.back().run(call);
              held += static_cast<double>(prepared.back().held_bytes());
            }
            const PlanKey key = key_of(problem, kK, plain);
            const double counted =
                (memory_needed(key, plans.size()) - memory_needed(key, 0)) / comm.world();
            EXPECT_GE(counted, held) << name(key);
            EXPECT_LE(counted, 3 * held) << name(key) << " holds " << held;
          },
          {});
    }
  }
}

}  // namespace
}  // namespace plait::measure
