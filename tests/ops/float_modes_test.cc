// Operators don't depend on how the threads of the ranks round and treat denormals.
#include <gtest/gtest.h>

#include <cfenv>
#include <string>
#include <vector>

#include "conformance/ranks.h"
#include "ops/operators.h"
#include "ops/problem.h"
#include "plait/error.h"
#include "tensor/compare.h"
#include "tensor/float_modes.h"

namespace plait {
namespace {

constexpr int kWorld = 3;

// Thirds, some of them so small that sums of their products are denormal.
void fill_thirds(const TensorView& view, std::int64_t first) {
  for (std::int64_t row = 0; row < view.rows; ++row) {
    for (std::int64_t col = 0; col < view.cols; ++col) {
      const std::int64_t at = row * view.cols + col + first;
      const float value = static_cast<float>(at % 7 + 1) / 3 * (row % 3 == 0 ? 0x1p-68F : 1);
      convert(&value, Dtype::f32, view.column_range(col, col + 1).row(row), view.dtype, 1);
    }
  }
}

struct Problem {
  Problem(Operator op, const Communicator& comm) : of_op(op, 37, comm) {
    fill_thirds(of_op.x.view, comm.rank());
    fill_thirds(of_op.w.view, comm.rank() + 5);
    fill_thirds(bias.view, 0);
  }
  OpCall call(const TensorView& out) const {
    OpCall call = of_op.call();
    call.out = out;
    call.bias = bias.view;
    return call;
  }

  OpProblem of_op;
  Matrix bias = Matrix(Dtype::f16, 1, of_op.n);
};

class FloatModesOfRanks : public testing::TestWithParam<Operator> {};

INSTANTIATE_TEST_SUITE_P(Ops, FloatModesOfRanks, testing::ValuesIn(every_operator()),
                         operator_name);

TEST_P(FloatModesOfRanks, ChangeNoBit) {
  const auto body = [](Communicator& comm) {
    const Problem problem(GetParam(), comm);
    const Matrix usual(Dtype::f32, problem.of_op.out.view.rows, problem.of_op.n);
    const Matrix out(Dtype::f32, problem.of_op.out.view.rows, problem.of_op.n);
    OpDesc desc = problem.of_op.plain_desc();
    desc.out = Dtype::f32;
    const auto call = [&](const TensorView& to) {
      OpCall plain = problem.call(to);
      plain.weight = problem.of_op.plain();
      return plain;
    };
    prepare(desc, comm).run(call(usual.view));
    for (const char* text : {"serial", "pipelined parts=3", "fused chunk=64"}) {
      const Plan plan = parse_plan(text);
      if (!has_schedule(GetParam(), plan.schedule)) continue;
      for (const FloatMode& mode : float_modes()) {
        for (const int odd_one : {-1, 1}) {  // in the mode alone; -1: all are
          const bool enters = odd_one < 0 || odd_one == comm.rank();
          if (enters) mode.enter();
          const auto before = float_control();
          prepare(desc, comm, {.plan = plan}).run(call(out.view));
          const auto after = float_control();
          if (enters) mode.leave();
          EXPECT_EQ(before, after) << mode.name;
          EXPECT_TRUE(tensor::same_bits(out.view, usual.view))
              << text << ", " << mode.name << " on rank " << odd_one;
        }
      }
    }
  };
  run_as_threads(kWorld, body);
  run_as_threads(kWorld, body, {.link = parse_link("10gbit,50us")});
}

// A hook that an operator calls between tiles and in waits computes as the operator does, and its
// float modes don't spoil the operator.
TEST(APollHook, ComputesWithDefaultFloatsWhateverTheCallerHasSet) {
  const auto body = [](Communicator& comm) {
    const Problem problem(Operator::matmul_all_reduce, comm);
    const Matrix usual(Dtype::bf16, problem.of_op.m, problem.of_op.n);
    Op op = prepare(problem.of_op.desc(), comm, {.plan = Plan{.schedule = Schedule::serial}});
    op.run(problem.call(usual.view));
    const auto default_floats = float_control();
    for (const FloatMode& mode : float_modes()) {
      int calls = 0;
      int others = 0;
      OpCall call = problem.call(problem.of_op.out.view);
      call.poll = [&] {
        ++calls;
        const bool is_nearest = std::fegetround() == FE_TONEAREST;  // of the coprocessor too
        if (float_control() != default_floats || !is_nearest) ++others;
        mode.enter();
      };
      mode.enter();
      const auto before = float_control();
      op.run(call);
      const auto after = float_control();
      mode.leave();
      EXPECT_EQ(before, after) << mode.name;
      EXPECT_GT(calls, 0);
      EXPECT_EQ(others, 0) << mode.name;
      EXPECT_TRUE(tensor::same_bits(problem.of_op.out.view, usual.view)) << mode.name;
    }
  };
  run_as_threads(kWorld, body);
}

// Which plan a source gives may come from numbers that it computes, and ranks must agree on it.
TEST(APlanSource, IsAskedWithDefaultFloats) {
  class Source final : public PlanSource {
   public:
    std::optional<Plan> find(const PlanKey& /*key*/) const override {
      seen = float_control();
      return Plan{.schedule = Schedule::serial};
    }
    mutable base::FloatControl seen = 0;
  };
  const auto body = [](Communicator& comm) {
    const Problem problem(Operator::matmul_all_reduce, comm);
    const TensorView& out = problem.of_op.out.view;
    const auto default_floats = float_control();
    for (const FloatMode& mode : float_modes()) {
      const Source source;
      const OpOptions options = {.plans = &source};
      mode.enter();
      prepare(problem.of_op.desc(), comm, options);
      const auto prepared = std::exchange(source.seen, 0);
      matmul_all_reduce(problem.of_op.x.view, problem.of_op.packed, out, comm, options);
      mode.leave();
      EXPECT_EQ(prepared, default_floats) << mode.name;
      EXPECT_EQ(source.seen, default_floats) << mode.name;
    }
  };
  run_as_threads(2, body);
}

}  // namespace
}  // namespace plait
