// The objects that blocking calls leave behind for the next ones, and their memory
// (src/ops/op_cache.h).
#include "ops/op_cache.h"

#include <gtest/gtest.h>

#include "conformance/ranks.h"
#include "ops/problem.h"

namespace plait::ops {
namespace {

// X must be packed: its k is no multiple of anything.
constexpr std::int64_t kRows = 300;
constexpr std::int64_t kDepth = 99;
constexpr std::size_t kPackedBytes = std::size_t{kRows} * kDepth * sizeof(std::uint16_t);

// A call whose number of columns makes it a kind of its own.
struct Call {
  explicit Call(Communicator& on, std::int64_t columns = 200, std::int64_t rows = kRows)
      : comm(on), problem(Operator::matmul_all_reduce, rows, comm, columns, kDepth) {}

  void run(OpCache& cache, const char* plan = "serial") const {
    cache.run(problem.desc(), comm, {.plan = parse_plan(plan), .threads = 1}, problem.call());
  }

  Communicator& comm;
  OpProblem problem;
};

// Also in another plan, and of another number of rows.
TEST(OpCache, IsUsedAgain) {
  run_as_threads(2, [](Communicator& comm) {
    OpCache cache;
    for (const std::int64_t rows : {300, 7}) {
      for (const char* plan : {"fused", "serial", "pipelined parts=3"}) {
        for (const std::int64_t columns : {200, 201}) Call(comm, columns, rows).run(cache, plan);
      }
    }
    EXPECT_EQ(cache.size(), 2U);
  });
}

// They take the same memory, but a timeline tells them apart, and plans that are tuned from it.
TEST(OpCache, TellsAPlainWeightFromAPackedOne) {
  run_as_threads(2, [](Communicator& comm) {
    const Call call(comm);
    OpCache cache;
    call.run(cache, "fused");
    cache.run(call.problem.plain_desc(), comm, {.plan = parse_plan("fused"), .threads = 1},
              call.problem.plain_call());
    EXPECT_EQ(cache.size(), 2U);
  });
}

TEST(OpCache, IsNotMoreThanItsLimits) {
  run_as_threads(2, [](Communicator& comm) {
    const Call first(comm, 200);
    const Call second(comm, 201);
    const Call third(comm, 202);
    OpCache all;
    first.run(all);
    const std::size_t one = all.bytes();
    second.run(all);
    const std::size_t both = all.bytes();
    EXPECT_GE(one, kPackedBytes);
    EXPECT_GE(both, one + kPackedBytes);

    OpCache few({.entries = 2});
    for (const Call* call : {&first, &second, &third}) call->run(few);
    EXPECT_EQ(few.size(), 2U);

    OpCache exact({.bytes = both});
    OpCache small({.bytes = both - 1});
    for (OpCache* cache : {&exact, &small}) {
      first.run(*cache);
      second.run(*cache);
    }
    EXPECT_EQ(exact.bytes(), both);
    EXPECT_EQ(small.size(), 1U);
    EXPECT_EQ(small.bytes(), both - one);
  });
}

// More rows take more memory in the middle of a program's life.
TEST(OpCache, CountsWhatMoreRowsTake) {
  run_as_threads(2, [](Communicator& comm) {
    OpCache cache;
    Call(comm, 200, 3).run(cache);
    Call(comm, 201, 3).run(cache);
    const std::size_t few = cache.bytes();
    Call(comm, 200).run(cache);
    EXPECT_GE(cache.bytes(), few + kPackedBytes / 2);
    EXPECT_EQ(cache.size(), 2U);

    OpCache small({.bytes = few});
    Call(comm, 200, 3).run(small);
    Call(comm, 201, 3).run(small);
    EXPECT_EQ(small.size(), 2U);
    Call(comm, 200).run(small);
    EXPECT_EQ(small.size(), 1U);
  });
}

// The last one is kept however large it is: a caller that repeats it must not pay for it again.
TEST(OpCache, HasTheLastOneAtLeast) {
  run_as_threads(2, [](Communicator& comm) {
    OpCache cache({.entries = 1, .bytes = 1});
    for (const std::int64_t columns : {200, 201}) {
      Call(comm, columns).run(cache);
      EXPECT_EQ(cache.size(), 1U);
      EXPECT_GT(cache.bytes(), 1U);
    }
  });
}

// Also what its product packs and works in, which comes with the first run.
TEST(HeldBytes, CountAllThatAnOperatorKeeps) {
  run_as_threads(2, [](Communicator& comm) {
    for (const char* plan : {"serial", "pipelined parts=2", "fused"}) {
      const Call call(comm);
      Op op = prepare(call.problem.desc(), comm, {.plan = parse_plan(plan), .threads = 1});
      const std::size_t before = op.held_bytes();
      op.run(call.problem.call());
      EXPECT_GE(op.held_bytes(), before + kPackedBytes) << plan;
    }
  });
}

}  // namespace
}  // namespace plait::ops
