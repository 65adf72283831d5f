// Refusals of the operators: one sentence with the operator and the values, and nothing written.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <utility>

#include "conformance/ranks.h"
#include "ops/problem.h"
#include "plait/error.h"
#include "plait/quantized.h"

namespace plait {
namespace {

std::string refusal(const std::function<void()>& call) {
  return expect_error(Code::invalid_argument, call).what();
}

// Runs the body on both ranks alike, which keeps either from waiting for the other.
void with_problem(Operator op, const std::function<void(OpProblem&, Communicator&)>& body) {
  run_as_threads(2, [&](Communicator& comm) {
    OpProblem problem(op, 8, comm);
    body(problem, comm);
  });
}

TEST(Refusals, NameTheOperatorAndTheSizes) {
  with_problem(Operator::matmul_all_reduce, [](OpProblem& p, Communicator& comm) {
    Op op = prepare(p.desc(), comm);
    OpCall call = p.call();
    call.x.rows = 7;
    EXPECT_EQ(refusal([&] { op.run(call); }), "matmul_all_reduce: out is 8 x 200, not 7 x 200");
    call = p.call();
    call.x.cols = 95;
    EXPECT_EQ(refusal([&] { op.run(call); }), "matmul_all_reduce: x is 8 x 95, not 8 x 96");
    call = p.call();
    call.out.cols = 199;
    EXPECT_EQ(refusal([&] { op.run(call); }), "matmul_all_reduce: out is 8 x 199, not 8 x 200");
    call = p.call();
    call.x.data = nullptr;
    EXPECT_TRUE(contains(refusal([&] { op.run(call); }), "matmul_all_reduce: x"));
    call = p.call();
    call.out.dtype = Dtype::f16;
    EXPECT_EQ(refusal([&] { op.run(call); }),
              "matmul_all_reduce: out is f16 but was said to be bf16");
    const Matrix bias(Dtype::f32, 1, 100);
    call = p.call();
    call.bias = bias.view;
    EXPECT_EQ(refusal([&] { op.run(call); }), "matmul_all_reduce: bias is 1 x 100, not 1 x 200");
    call = p.call();
    call.gathered = p.out.view;
    EXPECT_EQ(refusal([&] { op.run(call); }), "matmul_all_reduce: was not prepared to gather x");
    call = p.call();
    call.out.data = p.w.view.data;
    call.weight = p.plain();
    call.out.row_stride = p.w.view.row_stride + 200;
    EXPECT_EQ(refusal([&] { prepare(p.plain_desc(), comm).run(call); }),
              "matmul_all_reduce: out overlaps weight");
    // After all that, it works; also where x and out are columns of one matrix.
    op.run(p.call());
    const Matrix both(Dtype::bf16, 8, 300);
    call = p.call();
    call.x = both.view.column_range(0, 96);
    call.out = both.view.column_range(96, 296);
    op.run(call);
    call.out = both.view.column_range(95, 295);
    EXPECT_EQ(refusal([&] { op.run(call); }), "matmul_all_reduce: out overlaps x");
  });
}

TEST(Refusals, WantShardsOfTheRightSize) {
  run_as_threads(3, [](Communicator& comm) {
    const OpProblem p(Operator::all_gather_matmul, 8, comm);
    OpCall call = p.call();
    call.x = p.x.view.row_range(1, p.x.view.rows);
    const std::string rows = comm.rank() < 2 ? "2" : "1";
    const std::string want = comm.rank() < 2 ? "3" : "2";
    EXPECT_EQ(refusal([&] { prepare(p.desc(), comm).run(call); }),
              "all_gather_matmul: x is " + rows + " x 96, not " + want +
                  " x 96: of 8 rows this rank has " + want);
  });
}

TEST(Refusals, OfADescription) {
  with_problem(Operator::reduce_scatter_matmul, [](OpProblem& p, Communicator& comm) {
    OpDesc desc = p.desc();
    desc.m = -1;
    EXPECT_EQ(refusal([&] { prepare(desc, comm); }),
              "reduce_scatter_matmul: m=-1 is not between 0 and 2^48");
    desc = p.desc();
    desc.out = Dtype::s8;
    EXPECT_EQ(refusal([&] { prepare(desc, comm); }),
              "reduce_scatter_matmul: out is s8; there are f32, bf16 and f16");
    EXPECT_EQ(refusal([&] { prepare(p.desc(), comm, {.wire = static_cast<Dtype>(9)}); }),
              "reduce_scatter_matmul: the wire is unknown; there are f32, bf16, f16 and s8");
    desc = p.desc();
    desc.gathered = true;
    EXPECT_EQ(refusal([&] { prepare(desc, comm); }),
              "reduce_scatter_matmul: gathers no x; all_gather_matmul does");
    EXPECT_EQ(refusal([&] { prepare(p.desc(), comm, {.plan = Plan{}}); }),
              "reduce_scatter_matmul: there is no fused schedule of it; there are serial and "
              "pipelined");
    const Plan columns = {.schedule = Schedule::pipelined, .axis = Axis::columns};
    EXPECT_EQ(refusal([&] { prepare(p.desc(), comm, {.plan = columns}); }),
              "reduce_scatter_matmul: axis=columns would cut the k of a product; what comes first "
              "here is cut in rows");
    const Plan parts = {.schedule = Schedule::pipelined, .parts = 0};
    EXPECT_EQ(refusal([&] { prepare(p.desc(), comm, {.plan = parts}); }),
              "reduce_scatter_matmul: parts=0 is not between 1 and 64");
    desc = p.desc();
    desc.n = -1;
    EXPECT_EQ(refusal([&] { prepare(desc, comm); }),
              "reduce_scatter_matmul: n=-1 is not between 0 and 2^48");
    desc = p.desc();
    desc.weight.dtype = Dtype::s8;
    EXPECT_EQ(refusal([&] { prepare(desc, comm); }),
              "reduce_scatter_matmul: the weight is s8; there are f32, bf16 and f16");
    desc.weight = {.scheme = QuantScheme{}, .is_packed = false};
    EXPECT_EQ(refusal([&] { prepare(desc, comm); }),
              "reduce_scatter_matmul: a weight of s8:channel is always packed");
  });
}

// They would have to be kept for the runs that follow.
TEST(Refusals, OfOptionsOfASingleCall) {
  with_problem(Operator::all_gather_matmul, [](OpProblem& p, Communicator& comm) {
    const auto says = [&](const OpOptions& options) {
      return refusal([&] { prepare(p.desc(), comm, options); });
    };
    const std::string why =
        " belongs to a single call, and is not among the options of what is prepared";
    const Matrix bias(Dtype::f32, 1, p.n);
    EXPECT_EQ(says({.bias = bias.view}), "all_gather_matmul: a bias" + why);
    EXPECT_EQ(says({.gathered = p.out.view}),
              "all_gather_matmul: a place for the gathered x" + why);
    EXPECT_EQ(says({.stream = {.handle = &p}}), "all_gather_matmul: a stream" + why);
    EXPECT_EQ(says({.poll = [] {}}), "all_gather_matmul: a poll hook" + why);
  });
}

TEST(Refusals, OfAStreamForMemoryOfTheCpu) {
  with_problem(Operator::matmul_all_reduce, [](OpProblem& p, Communicator& comm) {
    EXPECT_EQ(refusal([&] {
                matmul_all_reduce(p.x.view, p.packed, p.out.view, comm, {.stream = {.handle = &p}});
              }),
              "matmul_all_reduce: a stream was given for operands on the cpu, which has none");
  });
}

TEST(Refusals, OfAViewWithoutADtype) {
  with_problem(Operator::matmul_all_reduce, [](OpProblem& p, Communicator& comm) {
    const TensorView untold = {.data = p.x.view.data, .rows = p.x.view.rows, .cols = 96};
    EXPECT_EQ(refusal([&] { matmul_all_reduce(untold, p.packed, p.out.view, comm); }),
              "matmul_all_reduce: x has no dtype");
    OpCall call = p.call();
    call.out.dtype = kNoDtype;
    EXPECT_EQ(refusal([&] { prepare(p.desc(), comm).run(call); }),
              "matmul_all_reduce: out is 8 x 200 and has no dtype");
  });
}

TEST(Refusals, OfAWeightOfAnotherKind) {
  with_problem(Operator::matmul_all_reduce, [](OpProblem& p, Communicator& comm) {
    Op op = prepare(p.desc(), comm);
    OpCall plain = p.plain_call();
    EXPECT_EQ(refusal([&] { op.run(plain); }),
              "matmul_all_reduce: weight has n=200 k=96 and is bf16:plain but the operator was "
              "prepared for n=200 k=96 and bf16");
    const PackedWeight small(quantize(p.plain(), *parse_quant_scheme("s8:group=32")));
    plain.weight = small;
    EXPECT_EQ(refusal([&] { op.run(plain); }),
              "matmul_all_reduce: weight has n=200 k=96 and is s8:group=32 but the operator was "
              "prepared for n=200 k=96 and bf16");
    const Matrix wide(Dtype::bf16, 4096, 96);
    p.packed = PackedWeight({.view = wide.view, .layout = WeightLayout::out_in}, 1);
    EXPECT_EQ(refusal([&] { op.run(p.call()); }),
              "matmul_all_reduce: weight has n=4096 k=96 and is bf16 but the operator was prepared "
              "for n=200 k=96 and bf16");
    const PackedWeight taken = std::move(p.packed);
    EXPECT_EQ(refusal([&] { op.run(p.call()); }),
              "matmul_all_reduce: weight has been moved to another PackedWeight");
  });
}

TEST(Refusals, OfAnOperatorThatWasMoved) {
  with_problem(Operator::matmul_all_reduce, [](OpProblem& p, Communicator& comm) {
    Op op = prepare(p.desc(), comm);
    Op other = std::move(op);
    const std::string sentence = "this operator was moved to another Op, which runs it";
    EXPECT_EQ(refusal([&] { op.run(p.call()); }), sentence);               // NOLINT: on purpose
    EXPECT_EQ(refusal([&] { std::ignore = op.held_bytes(); }), sentence);  // NOLINT: on purpose
    other.run(p.call());
  });
}

TEST(Refusals, OfSizesBeyondMemory) {
  with_problem(Operator::all_gather_matmul, [](OpProblem& p, Communicator& comm) {
    OpDesc desc = p.desc();
    desc.m = std::int64_t{1} << 40;
    EXPECT_EQ(refusal([&] { prepare(desc, comm); }),
              "all_gather_matmul: m=1099511627776 by n=200 k=96 is more than memory can hold");
  });
}

TEST(Refusals, OfGatheredThatLiesWhereSomethingElseDoes) {
  with_problem(Operator::all_gather_matmul, [](OpProblem& p, Communicator& comm) {
    const auto says = [&](const TensorView& gathered) {
      const OpOptions options = {.gathered = gathered};
      return refusal([&] { all_gather_matmul(p.x.view, p.packed, p.out.view, comm, options); });
    };
    EXPECT_EQ(says(p.x.view), "all_gather_matmul: gathered is 4 x 96, not 8 x 96");
    // The view begins at p.x and ends beyond its memory: it is refused before any write.
    TensorView over = {.data = p.x.view.data,
                       .dtype = Dtype::bf16,
                       .rows = p.m,
                       .cols = p.x.view.cols,
                       .row_stride = p.x.view.row_stride};
    EXPECT_EQ(says(over), "all_gather_matmul: gathered overlaps x");
    over.data = p.out.view.data;
    EXPECT_EQ(says(over), "all_gather_matmul: gathered overlaps out");
  });
}

}  // namespace
}  // namespace plait
