// Promises of the operators (plait/ops.h), beyond those that plait verify tries at random.
#include "plait/ops.h"
#include "ops/operators.h"

#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/sanitized.h"
#include "conformance/ranks.h"
#include "ops/problem.h"
#include "plait/error.h"
#include "plan/sizes.h"
#include "tensor/compare.h"

namespace plait {
namespace {

std::vector<Plan> plans_of(Operator op) {
  std::vector<Plan> plans;
  for (const char* text : {"serial", "pipelined parts=3", "fused", "fused chunk=64"}) {
    const Plan plan = parse_plan(text);
    if (has_schedule(op, plan.schedule)) plans.push_back(plan);
  }
  return plans;
}

void poison(const TensorView& view) {
  for (std::int64_t row = 0; row < view.rows; ++row)
    std::memset(view.row(row), 0x5A, view.row_bytes());
}

class EveryOperator : public testing::TestWithParam<Operator> {};

INSTANTIATE_TEST_SUITE_P(Ops, EveryOperator, testing::ValuesIn(every_operator()), operator_name);

// Back to back without a barrier, one plan after another, some ranks ahead of others.
TEST_P(EveryOperator, GivesTheSameBitsInEveryPlanAndRun) {
  for (const RunRanks runner : {run_as_threads, run_in_processes}) {
    runner(3, [](Communicator& comm) {
      const OpProblem problem(GetParam(), 37, comm);
      const Matrix serial(Dtype::bf16, problem.out.view.rows, problem.n);
      Op first = prepare(problem.desc(), comm, {.plan = Plan{.schedule = Schedule::serial}});
      first.run({.x = problem.x.view, .weight = problem.packed, .out = serial.view});
      for (const Plan& plan : plans_of(GetParam())) {
        Op op = prepare(problem.desc(), comm, {.plan = plan});
        EXPECT_EQ(op.plan(), plan);
        for (int run = 0; run < 20; ++run) {
          poison(problem.out.view);
          op.run(problem.call());
          ASSERT_TRUE(tensor::same_bits(problem.out.view, serial.view)) << name(plan);
        }
      }
    });
  }
}

// The one that gives all ranks all rows of what this one scatters.
Operator with_all_rows(Operator op) {
  if (op == Operator::matmul_reduce_scatter) return Operator::matmul_all_reduce;
  return op == Operator::reduce_scatter_matmul ? Operator::all_reduce_matmul : op;
}

// A row's bits are its own: not those of the rows that happen to be in the batch with it.
TEST_P(EveryOperator, GivesARowTheSameBitsInEveryBatch) {
  if (ops::shapes_of(GetParam()).x == ops::Rows::own) GTEST_SKIP() << "its x is cut anew";
  run_as_threads(2, [](Communicator& comm) {
    constexpr std::int64_t kRows = 24;
    const OpProblem whole(with_all_rows(GetParam()), kRows, comm);
    prepare(whole.desc(), comm).run(whole.call());
    const ops::Rows out = ops::shapes_of(GetParam()).out;
    for (const std::int64_t rows : {2, 7, 16}) {
      const OpProblem few(GetParam(), rows, comm);
      OpDesc desc = whole.desc();
      desc.op = GetParam();
      desc.m = rows;
      prepare(desc, comm)
          .run({.x = whole.x.view.row_range(0, rows), .weight = whole.packed, .out = few.out.view});
      const Range same = ops::range_of(out, rows, comm.rank(), comm.world());
      EXPECT_TRUE(tensor::same_bits(few.out.view, whole.out.view.row_range(same.begin, same.end)));
    }
  });
}

// Fused, rows are multiplied in the batches in which they come.
TEST(AllGatherMatmul, GivesARowTheSameBitsInEveryBatch) {
  run_as_threads(3, [](Communicator& comm) {
    constexpr std::int64_t kRows = 400;
    const OpProblem problem(Operator::all_gather_matmul, kRows, comm);
    const Matrix x(Dtype::bf16, kRows, problem.x.view.cols, 9);  // all ranks have it
    const Matrix whole(Dtype::bf16, kRows, problem.n);
    matmul(x.view, problem.packed, whole.view, comm);
    for (const std::int64_t rows : {2, 7, 100, 400}) {
      const Range own = ops::shard_of(rows, comm.rank(), comm.world());
      for (const Plan& plan : plans_of(Operator::all_gather_matmul)) {
        const Matrix out(Dtype::bf16, rows, problem.n);
        OpDesc desc = problem.desc();
        desc.m = rows;
        prepare(desc, comm, {.plan = plan})
            .run({.x = x.view.row_range(own.begin, own.end),
                  .weight = problem.packed,
                  .out = out.view});
        EXPECT_TRUE(tensor::same_bits(out.view, whole.view.row_range(0, rows)))
            << rows << " rows, " << name(plan);
      }
    }
  });
}

TEST_P(EveryOperator, TakesNoRowsAndFewerThanRanks) {
  run_as_threads(5, [](Communicator& comm) {
    for (const std::int64_t m : {0, 1, 3}) {
      const OpProblem serial(GetParam(), m, comm);
      prepare(serial.desc(), comm, {.plan = Plan{.schedule = Schedule::serial}}).run(serial.call());
      for (const Plan& plan : plans_of(GetParam())) {
        const OpProblem problem(GetParam(), m, comm);
        poison(problem.out.view);
        Op op = prepare(problem.desc(), comm, {.plan = plan});
        op.run(problem.call());
        EXPECT_TRUE(tensor::same_bits(problem.out.view, serial.out.view))
            << m << " rows, " << name(plan);
      }
    }
  });
}

// Rows of neighbours that have come are multiplied at once, but not across those of a late one.
TEST(AllGatherMatmul, MultipliesRunsOfRowsWhoeverIsLate) {
  run_as_threads(5, [](Communicator& comm) {
    const OpProblem problem(Operator::all_gather_matmul, 5 * 33 + 3, comm, 40);
    const Matrix serial(Dtype::bf16, problem.m, problem.n);
    prepare(problem.desc(), comm, {.plan = Plan{.schedule = Schedule::serial}})
        .run({.x = problem.x.view, .weight = problem.packed, .out = serial.view});
    for (const char* plan : {"fused", "fused chunk=8 poll=0"}) {
      Op op = prepare(problem.desc(), comm, {.plan = parse_plan(plan)});
      for (int late = 0; late < comm.world(); ++late) {
        poison(problem.out.view);
        barrier(comm);
        if (comm.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        op.run(problem.call());
        EXPECT_TRUE(tensor::same_bits(problem.out.view, serial.view))
            << plan << ", rank " << late << " is late";
      }
    }
  });
}

// Sums that are too many to be sent to all ranks, or copied: fused plans make them in the slots of
// their owners, which add them up, and send them on where all ranks get them.
class ManySums : public testing::TestWithParam<Operator> {};

INSTANTIATE_TEST_SUITE_P(Ops, ManySums,
                         testing::ValuesIn(operators([](const OperatorTraits& traits) {
                           return traits.shares_k;
                         })),
                         operator_name);

void have_the_same_bits(Operator op, Communicator& comm, Dtype wire) {
  constexpr std::int64_t kRows = 300;
  constexpr std::int64_t kColumns = 700;
  const OpProblem problem(op, kRows, comm, kColumns);
  const plan::PartialSums sums = {.m = kRows, .n = kColumns, .dtype = wire};
  ASSERT_FALSE(plan::is_one_step(sums, comm.world()));
  ASSERT_FALSE(plan::are_copied_at_once(sums));
  const Matrix bias(Dtype::f32, 1, kColumns, 7);
  OpCall call = problem.call();
  call.bias = bias.view;
  const Matrix serial(Dtype::bf16, problem.out.view.rows, kColumns);
  OpCall first = call;
  first.out = serial.view;
  prepare(problem.desc(), comm, {.wire = wire, .plan = Plan{.schedule = Schedule::serial}})
      .run(first);
  std::vector<Plan> plans = plans_of(op);
  plans.push_back({.schedule = Schedule::fused, .chunk = 7});
  for (const Plan& plan : plans) {
    Op ready = prepare(problem.desc(), comm, {.wire = wire, .plan = plan});
    for (int run = 0; run < (kIsSlow ? 2 : 5); ++run) {
      poison(problem.out.view);
      ready.run(call);
      ASSERT_TRUE(tensor::same_bits(problem.out.view, serial.view)) << name(plan);
    }
  }
}

TEST_P(ManySums, HaveTheSameBitsInEveryPlanAndRun) {
  for (const RunRanks runner : {run_as_threads, run_in_processes}) {
    runner(3, [](Communicator& comm) { have_the_same_bits(GetParam(), comm, Dtype::f32); });
  }
}

TEST_P(ManySums, HaveTheSameBitsInANarrowWire) {
  run_as_threads(2, [](Communicator& comm) { have_the_same_bits(GetParam(), comm, Dtype::bf16); });
}

TEST_P(ManySums, HaveTheSameBitsOverALink) {
  run_as_threads(2, [](Communicator& comm) { have_the_same_bits(GetParam(), comm, Dtype::f32); },
                 {.link = parse_link("1gbit,200us")});
}

// The second call of a kind makes nothing that the first has not made.
TEST_P(EveryOperator, KeepsWhatItHasPrepared) {
  run_as_threads(2, [](Communicator& comm) {
    const OpProblem problem(GetParam(), 20, comm);
    // With several threads, each takes memory when it first gets something to do.
    Op op = prepare(problem.desc(), comm, {.threads = 1});
    op.run(problem.call());
    const std::size_t held = comm.mailbox_bytes();
    const std::size_t own = op.held_bytes();
    op.run(problem.call());
    prepare(problem.desc(), comm).run(problem.call());
    EXPECT_EQ(comm.mailbox_bytes(), held);
    EXPECT_EQ(op.held_bytes(), own);
  });
}

// A rank whose chunks are on their way is not late.
TEST_P(EveryOperator, WaitsForASlowLinkBeyondTheDeadline) {
  const Link link = {.bytes_per_second = 1e9, .latency_ns = 600'000'000};
  std::barrier<> meeting(2);  // takes no link
  run_as_threads(2,
                 [&](Communicator& comm) {
                   for (const char* text : {"serial", "fused chunk=16"}) {
                     const Plan plan = parse_plan(text);
                     if (!has_schedule(GetParam(), plan.schedule)) continue;
                     const OpProblem problem(GetParam(), 300, comm);
                     Op op = prepare(problem.desc(), comm, {.plan = plan});
                     meeting.arrive_and_wait();
                     set_timeout(comm, std::chrono::milliseconds(400));
                     EXPECT_NO_THROW(op.run(problem.call()));
                     set_timeout(comm, std::chrono::minutes(1));
                   }
                 },
                 {.link = link});
}

TEST(Gathered, IsEverybodysXInEveryPlan) {
  run_as_threads(3, [](Communicator& comm) {
    const OpProblem problem(Operator::all_gather_matmul, 31, comm);
    for (const Plan& plan : plans_of(Operator::all_gather_matmul)) {
      const Matrix all(Dtype::bf16, 31, problem.x.view.cols);
      poison(all.view);
      all_gather_matmul(problem.x.view, problem.packed, problem.out.view, comm,
                        {.plan = plan, .gathered = all.view});
      for (int rank = 0; rank < 3; ++rank) {
        const Range rows = ops::shard_of(31, rank, 3);
        // OpProblem makes that rank's x from this seed.
        const Matrix x(Dtype::bf16, plan::length(rows), problem.x.view.cols,
                       static_cast<std::uint64_t>(rank) + 1);
        EXPECT_TRUE(tensor::same_bits(all.view.row_range(rows.begin, rows.end), x.view))
            << "rank " << rank << "'s rows, " << name(plan);
      }
    }
  });
}

TEST(Plans, ComeFromTheirSourceWhereNobodySaysAnother) {
  class Source final : public PlanSource {
   public:
    std::optional<Plan> find(const PlanKey& key) const override {
      EXPECT_EQ(key.world, 2);
      EXPECT_EQ(key.weight, "bf16");
      if (key.m != 16) return std::nullopt;
      return Plan{.schedule = Schedule::pipelined, .parts = 7};
    }
  };
  run_as_threads(2, [](Communicator& comm) {
    const Source source;
    const OpProblem problem(Operator::matmul_all_reduce, 16, comm);
    const OpDesc desc = problem.desc();
    EXPECT_EQ(prepare(desc, comm, {.plans = &source}).plan().parts, 7);
    OpDesc other = desc;
    other.m = 17;
    EXPECT_EQ(prepare(other, comm, {.plans = &source}).plan(), default_plan(desc.op));
    const Plan asked = {.schedule = Schedule::serial};
    EXPECT_EQ(prepare(desc, comm, {.plan = asked, .plans = &source}).plan(), asked);
  });
}

}  // namespace
}  // namespace plait
