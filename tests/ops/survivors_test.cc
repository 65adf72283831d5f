// Operators that are prepared anew by the ranks that are left when others were lost.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <utility>
#include <vector>

#include "conformance/ranks.h"
#include "gemm/matrix.h"
#include "plait/collectives.h"
#include "plait/gemm.h"
#include "plait/ops.h"
#include "tensor/compare.h"

namespace plait {
namespace {

constexpr std::int64_t kRows = 48, kColumns = 160, kDepth = 4096;

// The operands of the whole problem. Each rank has a share of k.
struct Whole {
  Matrix x{Dtype::f32, kRows, kDepth, 1};
  Matrix w{Dtype::f32, kColumns, kDepth, 2};

  Range share(const Communicator& comm) const {
    const Shard shard = balanced_shard(kDepth, comm.rank(), comm.world());
    const auto begin = static_cast<std::int64_t>(shard.offset);
    return {begin, begin + static_cast<std::int64_t>(shard.count)};
  }
  WeightView weight(const Range& k) const {
    return {w.view.column_range(k.begin, k.end), WeightLayout::out_in};
  }

  Op prepared(Communicator& comm, const char* plan) const {
    const WeightView own = weight(share(comm));
    return prepare({.op = Operator::matmul_all_reduce,
                    .m = kRows,
                    .n = kColumns,
                    .k = own.k(),
                    .x = Dtype::f32,
                    .weight = Weight(own).kind(),
                    .out = Dtype::f32},
                   comm, {.plan = parse_plan(plan), .threads = 1});
  }
  Matrix run(Op& op, const Communicator& comm) const {
    const Range k = share(comm);
    Matrix out(Dtype::f32, kRows, kColumns);
    op.run({.x = x.view.column_range(k.begin, k.end), .weight = weight(k), .out = out.view});
    return out;
  }
  Matrix product_of_one_rank() const {
    Matrix out(Dtype::f32, kRows, kColumns);
    select_gemm({.m = kRows,
                 .n = kColumns,
                 .k = kDepth,
                 .x = Dtype::f32,
                 .weight = Dtype::f32,
                 .out = Dtype::f32})
        .run({.x = {x.view}, .weight = weight({0, kDepth}), .out = out.view});
    return out;
  }
};

struct Outcome {
  Matrix first;                  // of all ranks
  std::vector<Matrix> repeated;  // of those that are left, in every schedule
  bool has_the_whole_tree;
};

// Ranks from `left` on end after two calls; the others repeat what has not ended on all of them.
Outcome lose_all_from(int left, Communicator& comm, const Whole& whole) {
  Op op = whole.prepared(comm, "fused");
  const auto made = comm.completed_calls();
  Outcome outcome = {.first = whole.run(op, comm), .repeated = {}, .has_the_whole_tree = true};
  if (comm.rank() >= left) {
    whole.run(op, comm);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  expect_error(Code::peer_lost, [&] {
    for (;;) whole.run(op, comm);
  });
  Survivors found = comm.survivors();
  EXPECT_GE(found.completed_calls, made + 1);
  EXPECT_LE(found.completed_calls, comm.completed_calls());
  while (found.comm.world() > left) {  // one that ended so late was among those that were left
    expect_error(Code::peer_lost, [&] {
      for (;;) barrier(found.comm);
    });
    Survivors next = found.comm.survivors();
    found.comm = std::move(next.comm);
  }
  EXPECT_EQ(found.comm.world(), left);
  for (const char* plan : {"serial", "pipelined parts=3", "fused"}) {
    Op again = whole.prepared(found.comm, plan);
    outcome.repeated.push_back(whole.run(again, found.comm));
    outcome.has_the_whole_tree = outcome.has_the_whole_tree && again.sum_tree();
  }
  return outcome;
}

// Shares of two ranks and of four are nodes of the sum's tree: the call that is repeated has the
// bits that it would have had.
void expect_the_bits_of_four_ranks(Communicator& comm) {
  const Whole whole;
  const Outcome outcome = lose_all_from(2, comm, whole);
  EXPECT_TRUE(outcome.has_the_whole_tree);
  const Matrix one = whole.product_of_one_rank();
  for (const Matrix& repeated : outcome.repeated) {
    EXPECT_TRUE(tensor::same_bits(repeated.view, outcome.first.view));
    EXPECT_TRUE(tensor::same_bits(repeated.view, one.view));
  }
}

TEST(OpsOfSurvivors, HaveTheBitsOfFourRanksOnTwo) {
  run_in_processes(4, expect_the_bits_of_four_ranks);
}

TEST(OpsOfSurvivors, HaveTheBitsOfFourRanksOnTwoOverTcp) {
  run_over_tcp(4, expect_the_bits_of_four_ranks);
}

// Shares of three ranks are no nodes. The sums are in another order, and right.
TEST(OpsOfSurvivors, AreRightOnThreeRanks) {
  run_in_processes(4, [](Communicator& comm) {
    const Whole whole;
    const Outcome outcome = lose_all_from(3, comm, whole);
    EXPECT_FALSE(outcome.has_the_whole_tree);
    const Matrix& serial = outcome.repeated.front();
    for (const Matrix& repeated : outcome.repeated)
      EXPECT_TRUE(tensor::same_bits(repeated.view, serial.view));
    for (std::int64_t i = 0; i < kRows; i += 7) {
      for (std::int64_t j = i % 5; j < kColumns; j += 5) {
        double sum = 0;
        double terms = 0;
        for (std::int64_t k = 0; k < kDepth; ++k) {
          const double term = at(whole.x.view, i, k) * at(whole.w.view, j, k);
          sum += term;
          terms += std::abs(term);
        }
        const double rounds = kDepth * 0x1p-24;
        EXPECT_NEAR(at(serial.view, i, j), sum, rounds / (1 - rounds) * terms);
      }
    }
  });
}

}  // namespace
}  // namespace plait
