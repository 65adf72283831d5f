// Ranks with uneven shares ask for the whole problem's plan: with an exchange, or without one where
// they know the whole size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conformance/ranks.h"
#include "ops/problem.h"
#include "plait/error.h"
#include "plait/trace.h"
#include "tensor/compare.h"
#include "trace/pack.h"

namespace plait {
namespace {

// Another plan for every size, so that ranks which ask about different ones disagree.
class Table final : public PlanSource {
 public:
  std::optional<Plan> find(const PlanKey& key) const override {
    asked = key;
    return Plan{.schedule = Schedule::pipelined,
                .parts = static_cast<int>((key.n + key.k) % 60) + 1};
  }
  mutable std::optional<PlanKey> asked;
};

bool has_exchanged(const Trace& trace) {
  const std::vector<std::string> labels = trace::unpack(trace.pack()).labels;
  return std::find(labels.begin(), labels.end(), "all_gather") != labels.end();
}

// One call with balanced shares of `whole`.
void expect_whole_problem(Operator op, std::int64_t whole, bool is_known, Communicator& comm) {
  const bool of_n = traits_of(op).shares_n;
  const std::int64_t own = ops::share_of(whole, comm.rank(), comm.world());
  const OpProblem problem(op, 7, comm, of_n ? own : 40, of_n ? 64 : own);
  const Matrix serial(Dtype::bf16, problem.out.view.rows, problem.n);
  const auto run = op == Operator::matmul_all_reduce       ? matmul_all_reduce
                   : op == Operator::matmul_reduce_scatter ? matmul_reduce_scatter
                                                           : all_gather_matmul;
  run(problem.x.view, problem.packed, serial.view, comm, {.plan = parse_plan("serial")});
  const Table table;
  Trace trace(comm.rank());
  comm.set_trace(&trace);
  run(problem.x.view, problem.packed, problem.out.view, comm,
      {.plans = &table, .whole_size = is_known ? whole : -1});
  comm.set_trace(nullptr);
  EXPECT_EQ(has_exchanged(trace), !is_known);
  ASSERT_TRUE(table.asked);
  EXPECT_EQ(of_n ? table.asked->n : table.asked->k, whole);
  EXPECT_TRUE(static_cast<bool>(tensor::same_bits(problem.out.view, serial.view)))
      << name(op) << " of " << whole << " on rank " << comm.rank();
}

class WholeSize : public RanksTest {};

INSTANTIATE_TEST_SUITE_P(Threads, WholeSize, worlds_of({"threads", run_as_threads}, {1, 2, 3}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Shm, WholeSize, worlds_of({"shm", run_in_processes}, {2, 3}), case_name);
INSTANTIATE_TEST_SUITE_P(Tcp, WholeSize, worlds_of({"tcp", run_over_tcp}, {2, 3}), case_name);

// From one call to the next the shares of some ranks are new, and those of others were seen before:
// of 9 and 10 in two shares, rank 0 has 5 both times.
TEST_P(WholeSize, IsThatOfEveryCallWhateverWasAskedBefore) {
  run([](Communicator& comm) {
    for (const Operator op : {Operator::matmul_all_reduce, Operator::matmul_reduce_scatter,
                              Operator::all_gather_matmul}) {
      for (const std::int64_t whole : {9, 10, 11, 10, 9, 96, 97, 9}) {
        expect_whole_problem(op, whole, false, comm);
        expect_whole_problem(op, whole, true, comm);
      }
    }
  });
}

// One that is not the sum of the shares suits another problem, and gives the same bits.
TEST_P(WholeSize, DecidesNothingButThePlan) {
  run([](Communicator& comm) {
    const OpProblem problem(Operator::matmul_all_reduce, 7, comm);
    const Matrix serial(Dtype::bf16, 7, problem.n);
    matmul_all_reduce(problem.x.view, problem.packed, serial.view, comm,
                      {.plan = parse_plan("serial")});
    const Table table;
    Op ready = prepare(problem.desc(), comm, {.plans = &table, .whole_size = 5000});
    ready.run(problem.call());
    EXPECT_EQ(table.asked->k, 5000);
    EXPECT_TRUE(static_cast<bool>(tensor::same_bits(problem.out.view, serial.view)));
  });
}

// Ranks that differ are in different calls, or follow different plans.
TEST_P(WholeSize, IsTheSameOnAllRanks) {
  if (world() == 1) return;
  for (const std::int64_t other : {-1, 5001}) {
    run([other](Communicator& comm) {
      const OpProblem problem(Operator::matmul_all_reduce, 7, comm);
      const Table table;
      const std::int64_t size = comm.rank() == 0 ? 5000 : other;
      expect_error(Code::mismatch, "matmul_all_reduce: ", [&] {
        matmul_all_reduce(problem.x.view, problem.packed, problem.out.view, comm,
                          {.plans = &table, .whole_size = size});
      });
    });
  }
}

TEST(WholeSizeRefusals, NameTheSize) {
  run_as_threads(2, [](Communicator& comm) {
    const auto refusal = [&](Operator op, std::int64_t size) -> std::string {
      const OpProblem problem(op, 8, comm);
      return expect_error(Code::invalid_argument,
                          [&] { prepare(problem.desc(), comm, {.whole_size = size}); })
          .what();
    };
    EXPECT_EQ(refusal(Operator::matmul_all_reduce, 95),
              "matmul_all_reduce: whole_size=95 is not between 96, this rank's share, and 2^48");
    EXPECT_EQ(refusal(Operator::all_gather_matmul, -2),
              "all_gather_matmul: whole_size=-2 is not between 200, this rank's share, and 2^48");
    EXPECT_EQ(refusal(Operator::matmul_all_gather, 400),
              "matmul_all_gather: whole_size=400; ranks have shares of neither n nor k");
  });
}

}  // namespace
}  // namespace plait
