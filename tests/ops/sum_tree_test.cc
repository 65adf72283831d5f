// Operators of several ranks give the bits of one rank that has all k, where they say so.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/ranks.h"
#include "gemm/matrix.h"
#include "plait/gemm.h"
#include "plait/ops.h"
#include "tensor/compare.h"

namespace plait {
namespace {

constexpr std::int64_t kRows = 37;
constexpr std::int64_t kColumns = 130;

// The operands of all ranks; each has a share of k.
struct Whole {
  Whole(Dtype dtype, std::int64_t depth)
      : x(dtype, kRows, depth, 1), w(dtype, kColumns, depth, 2), bias(Dtype::f32, 1, kColumns, 3) {}

  Matrix product() const {
    Matrix out(x.view.dtype, kRows, kColumns);
    select_gemm({.m = kRows,
                 .n = kColumns,
                 .k = x.view.cols,
                 .x = x.view.dtype,
                 .weight = w.view.dtype,
                 .out = out.view.dtype})
        .run({.x = {x.view},
              .weight = WeightView{w.view, WeightLayout::out_in},
              .out = out.view,
              .bias = bias.view});
    return out;
  }

  Matrix x;
  Matrix w;
  Matrix bias;
};

bool gives_the_whole(const Whole& whole, const Matrix& want, const Plan& plan, Communicator& comm) {
  const std::int64_t share = whole.x.view.cols / comm.world();
  const Range k = {comm.rank() * share, (comm.rank() + 1) * share};
  const Matrix out(whole.x.view.dtype, kRows, kColumns);
  matmul_all_reduce(whole.x.view.column_range(k.begin, k.end),
                    WeightView{whole.w.view.column_range(k.begin, k.end), WeightLayout::out_in},
                    out.view, comm, {.plan = plan, .threads = 1, .bias = whole.bias.view});
  return static_cast<bool>(tensor::same_bits(out.view, want.view));
}

TEST(SumTree, IsThatOfOneRankInEveryPlan) {
  for (const int world : {2, 4, 8, 16}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const Whole whole(dtype, world == 16 ? 16384 : 4096);
      const Matrix want = whole.product();
      run_as_threads(world, [&](Communicator& comm) {
        for (const char* plan : {"serial", "pipelined parts=3", "fused"})
          EXPECT_TRUE(gives_the_whole(whole, want, parse_plan(plan), comm))
              << name(dtype) << ' ' << plan << " of " << comm.world();
      });
    }
  }
}

std::string refusal_of(const OpDesc& desc, Communicator& comm, const OpOptions& options = {}) {
  const SumTree tree = prepare(desc, comm, options).sum_tree();
  return tree ? "" : tree.refusal;
}

TEST(SumTree, IsToldByAPreparedOperator) {
  OpDesc desc = {.op = Operator::matmul_all_reduce, .m = 8, .n = 64, .k = 1024};
  run_as_threads(4, [&](Communicator& comm) {
    EXPECT_EQ(refusal_of(desc, comm), "");
    EXPECT_EQ(refusal_of(desc, comm, {.wire = Dtype::bf16}),
              "the wire rounds the partial sum of each rank");
    OpDesc other = desc;
    other.k = comm.rank() == 2 ? 992 : 1024;
    EXPECT_EQ(refusal_of(other, comm), "the ranks' shares of k differ");
    other.k = 480;
    EXPECT_EQ(refusal_of(other, comm), "the share of k is shorter than a leaf");
    other = desc;
    other.op = Operator::all_reduce_matmul;
    EXPECT_EQ(refusal_of(other, comm), "the ranks add up their x before the product");
    other.op = Operator::all_gather_matmul;
    EXPECT_EQ(refusal_of(other, comm), "");
  });
  run_as_threads(16, [&](Communicator& comm) {
    EXPECT_EQ(refusal_of(desc, comm), "");
    OpDesc other = desc;
    other.k = 992;
    EXPECT_EQ(refusal_of(other, comm), "the share of k is shorter than a leaf");
  });
  run_as_threads(3, [&](Communicator& comm) {
    EXPECT_EQ(refusal_of(desc, comm), "k is shared by another number of ranks than 2, 4, 8 or 16");
  });
}

}  // namespace
}  // namespace plait
