// Promises of the layers (plait/linear.h), beyond those that plait verify --layers tries at random.
#include "plait/linear.h"
#include "comm/session/gather.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "conformance/ranks.h"
#include "nn/layer.h"
#include "tensor/compare.h"
#include "tensor/tolerance.h"

namespace plait {
namespace {

class EveryLayer : public testing::TestWithParam<LayerKind> {};

INSTANTIATE_TEST_SUITE_P(Nn, EveryLayer, testing::Values(LayerKind::column, LayerKind::row),
                         [](const auto& one) { return name_of(one.param); });

// An element of the whole x, weight or bias, of which every rank has a copy, and the outputs that
// it has a part in: a row or a column of them.
struct Element {
  TensorView whole;
  std::int64_t row, col;
  Range rows, cols;

  float& value() const { return static_cast<float*>(whole.row(row))[col]; }
};

// The derivative of the sum of out · grad_out by one element. Forward is linear in it, so that a
// difference over any step is exact but for the rounding of those outputs: a long step makes little
// of that.
class Difference {
 public:
  struct Result {
    double value;
    double off;  // at most
  };

  Difference(Communicator& comm, const LinearOptions& options, const LayerProblem& problem,
             const Matrix& bias)
      : comm_(comm), options_(options), problem_(problem), bias_(bias) {
    if (problem.kind == LayerKind::column) {
      column_.emplace(problem.desc(), comm, options);
    } else {
      row_.emplace(problem.desc(), comm, options);
    }
  }

  Result by(const Element& element) {
    constexpr float kStep = 64.0F;
    const float before = element.value();
    double sums[2] = {};
    double values[2] = {};
    double off = 0;
    for (const int side : {0, 1}) {
      element.value() = before + (side == 0 ? kStep : -kStep);
      values[side] = element.value();
      sums[side] = sum(element);
      off += may_be_off(element);
    }
    element.value() = before;
    const double step = values[0] - values[1];  // as it was rounded
    return {.value = (sums[0] - sums[1]) / step, .off = off / step};
  }

 private:
  // Sums those outputs over all ranks. Where all have the same rows of out, they count once.
  double sum(const Element& element) {
    LinearForward call = problem_.forward();
    const Range outputs = problem_.outputs();
    call.bias = bias_.view.column_range(outputs.begin, outputs.end);
    if (column_) column_->forward(call);
    if (row_) row_->forward(call);
    const bool counts = column_ || options_.sequence_parallel || comm_.rank() == 0;
    double own = 0;
    const Range rows = problem_.out_rows();
    for (std::int64_t i = rows.begin; counts && i < rows.end; ++i) {
      for (std::int64_t j = outputs.begin; j < outputs.end; ++j) {
        if (i < element.rows.begin || i >= element.rows.end) continue;
        if (j < element.cols.begin || j >= element.cols.end) continue;
        own += at(problem_.out.view, i - rows.begin, j - outputs.begin) *
               at(problem_.all_grad_out.view, i, j);
      }
    }
    const std::vector<double> all = comm::gather_values(own, comm_);
    return std::accumulate(all.begin(), all.end(), 0.0);
  }

  double may_be_off(const Element& element) const {
    const tensor::Roundings way = {.terms = LayerProblem::kInputs + 1, .world = comm_.world()};
    double off = 0;
    for (std::int64_t i = element.rows.begin; i < element.rows.end; ++i) {
      for (std::int64_t j = element.cols.begin; j < element.cols.end; ++j) {
        double magnitude = std::abs(at(bias_.view, 0, j));
        for (std::int64_t k = 0; k < LayerProblem::kInputs; ++k)
          magnitude += std::abs(at(problem_.all_x.view, i, k) * at(problem_.all_w.view, j, k));
        off += tensor::tolerance(way, magnitude) * std::abs(at(problem_.all_grad_out.view, i, j));
      }
    }
    return off;
  }

  Communicator& comm_;
  LinearOptions options_;
  const LayerProblem& problem_;
  const Matrix& bias_;
  std::optional<ColumnParallelLinear> column_;
  std::optional<RowParallelLinear> row_;
};

// The place of an element's gradient on the ranks that have it, and the sum of its parts.
struct Gradient {
  const char* name;
  const TensorView& part;
  Range rows, cols;  // that the part has of the whole
  tensor::Roundings way;
  double magnitude;  // of what is summed: at most
};

void expect_derivative(const Gradient& gradient, const Element& element,
                       const Difference::Result& want) {
  const auto has = [](const Range& range, std::int64_t one) {
    return one >= range.begin && one < range.end;
  };
  if (!has(gradient.rows, element.row) || !has(gradient.cols, element.col)) return;
  const double got =
      at(gradient.part, element.row - gradient.rows.begin, element.col - gradient.cols.begin);
  const double allowed = want.off + tensor::tolerance(gradient.way, gradient.magnitude);
  EXPECT_LT(allowed, 0.01);  // gradients are sums of products of numbers around 1
  EXPECT_NEAR(got, want.value, allowed)
      << gradient.name << '[' << element.row << ", " << element.col << ']';
}

void expect_the_gradients_of_forward(LayerKind kind, Communicator& comm, bool sequence_parallel) {
  constexpr std::int64_t kTokens = 9;
  constexpr auto kOutputs = LayerProblem::kOutputs;
  const LinearOptions options = {.sequence_parallel = sequence_parallel};
  const LayerProblem problem(kind, kTokens, comm, sequence_parallel, Dtype::f32);
  const Matrix bias(Dtype::f32, 1, kOutputs, 4);
  run_step(problem, comm, options);
  Difference difference(comm, options, problem, bias);
  // The elements are in every rank's rows and columns, in groups of two and of three.
  for (const std::int64_t input : {0, 17, 40, 95}) {
    for (const std::int64_t token : {0, 3, 4, 8}) {
      const Element x = {problem.all_x.view, token, input, {token, token + 1}, {0, kOutputs}};
      expect_derivative({"grad_x",
                         problem.grad_x.view,
                         problem.x_rows(),
                         problem.inputs(),
                         {.terms = kOutputs, .world = comm.world()},
                         kOutputs},
                        x, difference.by(x));
    }
    for (const std::int64_t output : {0, 60, 100, 159}) {
      const Element w = {problem.all_w.view, output, input, {0, kTokens}, {output, output + 1}};
      expect_derivative({"grad_weight",
                         problem.grad_weight.view,
                         problem.outputs(),
                         problem.inputs(),
                         {.terms = kTokens},
                         kTokens},
                        w, difference.by(w));
    }
  }
  for (const std::int64_t output : {0, 60, 100, 159}) {
    const Element b = {bias.view, 0, output, {0, kTokens}, {output, output + 1}};
    expect_derivative({"grad_bias",
                       problem.grad_bias.view,
                       {0, 1},
                       problem.outputs(),
                       {.terms = kTokens},
                       kTokens},
                      b, difference.by(b));
  }
}

TEST_P(EveryLayer, HasTheGradientsThatItsForwardHas) {
  for (const int world : {2, 3}) {
    for (const bool sequence_parallel : {true, false}) {
      SCOPED_TRACE(testing::Message() << world << " ranks, " << sequence_parallel);
      run_as_threads(world, [&](Communicator& comm) {
        expect_the_gradients_of_forward(GetParam(), comm, sequence_parallel);
      });
    }
  }
}

// One rank alone does what many do, but for the order of sums; between plans no bit differs.
TEST_P(EveryLayer, GivesTheSameBitsInEveryPlanOverProcessesAndLinks) {
  CommunicatorOptions linked;
  linked.link = parse_link("1gbit,50us");
  for (const CommunicatorOptions& over : {CommunicatorOptions{}, linked}) {
    run_in_processes(
        3,
        [](Communicator& comm) {
          const LayerProblem serial(GetParam(), 100, comm);
          run_step(serial, comm, {.operators = {.plan = parse_plan("serial")}});
          for (const bool keeps : {false, true}) {
            for (const char* plan : {"serial", "pipelined parts=3", "fused"}) {
              const LayerProblem one(GetParam(), 100, comm);
              run_step(one, comm,
                       {.recompute_all_gather = !keeps,
                        .column_backward = keeps,
                        .operators = {.plan = parse_plan(plan)}});
              EXPECT_TRUE(tensor::same_bits(one.out.view, serial.out.view)) << plan;
              EXPECT_TRUE(tensor::same_bits(one.grad_x.view, serial.grad_x.view)) << plan;
              EXPECT_TRUE(tensor::same_bits(one.grad_weight.view, serial.grad_weight.view)) << plan;
              EXPECT_TRUE(tensor::same_bits(one.grad_bias.view, serial.grad_bias.view)) << plan;
            }
          }
        },
        over);
  }
}

// Tensor- and expert-parallel groups cut the same ranks another way; none takes the other's chunks.
TEST_P(EveryLayer, WorksInSeveralGroupsSideBySide) {
  run_as_threads(4, [](Communicator& comm) {
    auto neighbours = comm.split(comm.rank() / 2, comm.rank());
    auto others = comm.split(comm.rank() % 2, comm.rank());
    ASSERT_TRUE(neighbours && others);
    const LayerProblem want(GetParam(), 30, *neighbours);
    run_step(want, *neighbours);
    std::vector<std::unique_ptr<LayerProblem>> got;
    std::vector<LinearState> states(2);
    std::vector<Communicator*> groups = {&*neighbours, &*others};
    got.reserve(groups.size());
    for (Communicator* group : groups)
      got.push_back(std::make_unique<LayerProblem>(GetParam(), 30, *group));
    if (GetParam() == LayerKind::column) {
      ColumnParallelLinear first(got[0]->desc(), *groups[0]);
      ColumnParallelLinear second(got[1]->desc(), *groups[1]);
      first.forward(got[0]->forward(), states.data());
      second.forward(got[1]->forward(), &states[1]);
      first.backward(got[0]->backward(), states.data());
      second.backward(got[1]->backward(), &states[1]);
    } else {
      RowParallelLinear first(got[0]->desc(), *groups[0]);
      RowParallelLinear second(got[1]->desc(), *groups[1]);
      first.forward(got[0]->forward(), states.data());
      second.forward(got[1]->forward(), &states[1]);
      first.backward(got[0]->backward(), states.data());
      second.backward(got[1]->backward(), &states[1]);
    }
    EXPECT_TRUE(tensor::same_bits(got[0]->out.view, want.out.view));
    EXPECT_TRUE(tensor::same_bits(got[0]->grad_x.view, want.grad_x.view));
    EXPECT_TRUE(tensor::same_bits(got[0]->grad_weight.view, want.grad_weight.view));
    // Ranks 0 and 3 stand in both groups where they did; 1 and 2 have the other half
    if (comm.rank() != 0 && comm.rank() != 3) return;
    EXPECT_TRUE(tensor::same_bits(got[1]->out.view, want.out.view));
    EXPECT_TRUE(tensor::same_bits(got[1]->grad_x.view, want.grad_x.view));
    EXPECT_TRUE(tensor::same_bits(got[1]->grad_weight.view, want.grad_weight.view));
  });
}

// A source is asked for each operator by the whole problem's sizes, forward and backward by others.
class Asked final : public PlanSource {
 public:
  std::optional<Plan> find(const PlanKey& key) const override {
    asked.push_back(key);
    return Plan{.schedule = Schedule::pipelined, .parts = 2, .axis = Axis::columns};
  }
  mutable std::vector<PlanKey> asked;
};

TEST_P(EveryLayer, AsksASourceForEachOfItsOperators) {
  run_as_threads(2, [](Communicator& comm) {
    const Asked plans;
    const LayerProblem problem(GetParam(), 64, comm);
    run_step(problem, comm, {.column_backward = true, .operators = {.plans = &plans}});
    ASSERT_EQ(plans.asked.size(), 2U);
    const bool column = GetParam() == LayerKind::column;
    const PlanKey& forward = plans.asked[0];
    EXPECT_EQ(forward.op, column ? Operator::all_gather_matmul : Operator::matmul_reduce_scatter);
    EXPECT_EQ(forward.m, 64);
    EXPECT_EQ(forward.n, LayerProblem::kOutputs);
    EXPECT_EQ(forward.k, LayerProblem::kInputs);
    const PlanKey& backward = plans.asked[1];
    EXPECT_EQ(backward.op, column ? Operator::matmul_reduce_scatter : Operator::all_gather_matmul);
    EXPECT_EQ(backward.m, 64);
    EXPECT_EQ(backward.n, LayerProblem::kInputs);
    EXPECT_EQ(backward.k, LayerProblem::kOutputs);
    for (const PlanKey& key : plans.asked) EXPECT_EQ(key.weight, "bf16:plain");
  });
}

// An 8-bit weight is frozen; what flows through it backward takes it the other way round.
TEST_P(EveryLayer, TakesAFrozenQuantisedWeight) {
  run_as_threads(2, [](Communicator& comm) {
    const LayerProblem problem(GetParam(), 20, comm);
    const auto scheme = *parse_quant_scheme("s8:channel");
    const QuantizedWeight quantized =
        quantize({.view = problem.w(), .layout = WeightLayout::out_in}, scheme);
    const PackedWeight packed(quantized);
    const PackedWeight turned({.view = problem.w(), .layout = WeightLayout::in_out});
    LinearDesc desc = problem.desc();
    desc.weight = Weight(packed).kind();
    desc.turned = Weight(turned).kind();
    LinearForward forward = problem.forward();
    forward.weight = packed;
    const LinearBackward call = {
        .turned = turned, .grad_out = problem.grad_out(), .grad_x = problem.grad_x.view};
    const LayerProblem plain(GetParam(), 20, comm);
    run_step(plain, comm);
    LinearState state;
    with_layer(GetParam(), desc, comm, {}, [&](auto layer) {
      layer.forward(forward, &state);
      layer.backward(call, &state);
    });
    EXPECT_TRUE(tensor::same_bits(problem.grad_x.view, plain.grad_x.view));
    // A quantised weight is at most half a step of its column off: 1/254 of the
    // largest.
    for (std::int64_t i = 0; i < problem.out.view.rows; ++i) {
      EXPECT_NEAR(at(problem.out.view, i, 0), at(plain.out.view, i, 0),
                  LayerProblem::kInputs / 254.0 + 0.1);
    }
  });
}

TEST(LinearState, IsUsedAgainWithItsMemory) {
  run_as_threads(2, [](Communicator& comm) {
    const LayerProblem problem(LayerKind::column, 40, comm);
    ColumnParallelLinear layer(problem.desc(), comm, {.recompute_all_gather = false});
    LinearState state;
    layer.forward(problem.forward(), &state);
    layer.backward(problem.backward(), &state);
    const std::size_t held = state.held_bytes();
    const LayerProblem again(LayerKind::column, 40, comm);
    layer.forward(again.forward(), &state);
    layer.backward(again.backward(), &state);
    EXPECT_EQ(state.held_bytes(), held);
    EXPECT_TRUE(tensor::same_bits(again.grad_weight.view, problem.grad_weight.view));
  });
}

}  // namespace
}  // namespace plait
