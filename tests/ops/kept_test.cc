// What the blocking calls leave behind for the next ones, and how much of it (src/ops/kept.h).
#include "ops/kept.h"

#include <gtest/gtest.h>

#include "conformance/ranks.h"
#include "ops/problem.h"

namespace plait::ops {
namespace {

using conformance::run_as_threads;

// X must be packed: its k is no multiple of anything.
constexpr std::int64_t kRows = 300;
constexpr std::int64_t kDepth = 99;
constexpr std::size_t kPackedBytes = std::size_t{kRows} * kDepth * sizeof(std::uint16_t);

struct Call {
  Communicator& comm;
  OpProblem problem{Operator::matmul_all_reduce, kRows, comm, 200, kDepth};

  void run(Kept& kept, const char* plan) const {
    kept.run(problem.desc(), comm, {.plan = parse_plan(plan), .threads = 1}, problem.call());
  }
};

TEST(Kept, IsUsedAgain) {
  run_as_threads(2,
                 [](Communicator& comm) {
                   const Call call = {comm};
                   Kept kept;
                   for (const char* plan : {"fused", "serial", "fused", "serial"})
                     call.run(kept, plan);
                   EXPECT_EQ(kept.kinds(), 2U);
                 },
                 {});
}

// They take the same memory, but a timeline tells them apart, and plans that are tuned from it.
TEST(Kept, TellsAPlainWeightFromAPackedOne) {
  run_as_threads(2,
                 [](Communicator& comm) {
                   const Call call = {comm};
                   Kept kept;
                   call.run(kept, "fused");
                   kept.run(call.problem.plain_desc(), comm,
                            {.plan = parse_plan("fused"), .threads = 1}, call.problem.plain_call());
                   EXPECT_EQ(kept.kinds(), 2U);
                 },
                 {});
}

TEST(Kept, IsNotMoreThanItsLimits) {
  run_as_threads(2,
                 [](Communicator& comm) {
                   const Call call = {comm};
                   Kept all;
                   call.run(all, "serial");
                   const std::size_t serial = all.bytes();
                   call.run(all, "pipelined parts=2");
                   const std::size_t both = all.bytes();
                   EXPECT_GE(serial, kPackedBytes);
                   EXPECT_GE(both, serial + kPackedBytes);

                   Kept few({.kinds = 2});
                   for (const char* plan : {"serial", "fused", "pipelined parts=2"})
                     call.run(few, plan);
                   EXPECT_EQ(few.kinds(), 2U);

                   Kept exact({.bytes = both});
                   Kept small({.bytes = both - 1});
                   for (Kept* kept : {&exact, &small}) {
                     call.run(*kept, "serial");
                     call.run(*kept, "pipelined parts=2");
                   }
                   EXPECT_EQ(exact.bytes(), both);
                   EXPECT_EQ(small.kinds(), 1U);
                   EXPECT_EQ(small.bytes(), both - serial);
                 },
                 {});
}

// However large it is: whoever calls it again would have to make it again.
TEST(Kept, HasTheLastOneAtLeast) {
  run_as_threads(2,
                 [](Communicator& comm) {
                   const Call call = {comm};
                   Kept kept({.kinds = 1, .bytes = 1});
                   for (const char* plan : {"serial", "fused"}) {
                     call.run(kept, plan);
                     EXPECT_EQ(kept.kinds(), 1U);
                     EXPECT_GT(kept.bytes(), 1U);
                   }
                 },
                 {});
}

// Also what its product packs and works in, which comes with the first run.
TEST(HeldBytes, CountAllThatAnOperatorKeeps) {
  run_as_threads(2,
                 [](Communicator& comm) {
                   for (const char* plan : {"serial", "pipelined parts=2", "fused"}) {
                     const Call call = {comm};
                     Op op = prepare(call.problem.desc(), comm,
                                     {.plan = parse_plan(plan), .threads = 1});
                     const std::size_t before = op.held_bytes();
                     op.run(call.problem.call());
                     EXPECT_GE(op.held_bytes(), before + kPackedBytes) << plan;
                   }
                 },
                 {});
}

}  // namespace
}  // namespace plait::ops
