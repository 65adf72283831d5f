// What the layers promise (plait/linear.h), beyond what plait verify --layers tries at random.
#include "plait/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "conformance/ranks.h"
#include "nn/layer.h"
#include "tensor/compare.h"
#include "tensor/tolerance.h"

namespace plait {
namespace {

using conformance::run_as_threads;
using conformance::run_in_processes;

class EveryLayer : public testing::TestWithParam<LayerKind> {};

INSTANTIATE_TEST_SUITE_P(Nn, EveryLayer, testing::Values(LayerKind::column, LayerKind::row),
                         [](const auto& one) {
                           return std::string(one.param == LayerKind::row ? "Row" : "Column");
                         });

void run_both(LayerKind kind, Communicator& comm, const LinearOptions& options,
              const LayerProblem& problem) {
  LinearState state;
  if (kind == LayerKind::column) {
    ColumnParallelLinear layer(problem.weight(), comm, options);
    layer.forward(problem.forward(), &state);
    layer.backward(problem.backward(), state);
  } else {
    RowParallelLinear layer(problem.weight(), comm, options);
    layer.forward(problem.forward(), &state);
    layer.backward(problem.backward(), state);
  }
}

// The sum of out · grad_out over all elements of all ranks: linear in x and in the weight.
double loss_of(LayerKind kind, Communicator& comm, const LayerProblem& problem) {
  const LinearOptions options = {.sequence_parallel = true};
  if (kind == LayerKind::column) {
    ColumnParallelLinear(problem.weight(), comm, options).forward(problem.forward());
  } else {
    RowParallelLinear(problem.weight(), comm, options).forward(problem.forward());
  }
  double loss = 0;
  for (std::int64_t i = 0; i < problem.out.view.rows; ++i) {
    for (std::int64_t j = 0; j < problem.out.view.cols; ++j)
      loss += at(problem.out.view, i, j) * at(problem.grad_out(), i, j);
  }
  std::vector<double> all(static_cast<std::size_t>(comm.world()));
  all_gather({&loss, sizeof(loss), Dtype::s8}, {all.data(), all.size() * sizeof(loss), Dtype::s8},
             comm);
  double sum = 0;
  for (const double one : all) sum += one;
  return sum;
}

struct Entry {
  TensorView matrix;
  std::int64_t row;
  std::int64_t col;
};

float& value_of(const Entry& entry) {
  return static_cast<float*>(entry.matrix.row(entry.row))[entry.col];
}

constexpr float kStep = 4.0F;

// Changes one element of rank 0's by a step either way. The loss is linear: the difference is exact
// but for the rounding of each output.
double difference(LayerKind kind, Communicator& comm, const LayerProblem& problem,
                  const Entry& entry) {
  double loss[2];
  for (const int side : {0, 1}) {
    if (comm.rank() == 0) value_of(entry) += side == 0 ? kStep : -2 * kStep;
    loss[side] = loss_of(kind, comm, problem);
  }
  if (comm.rank() == 0) value_of(entry) += kStep;
  return (loss[0] - loss[1]) / (2 * kStep);
}

TEST_P(EveryLayer, HasTheGradientsThatItsForwardHas) {
  run_as_threads(2,
                 [](Communicator& comm) {
                   const LayerProblem problem(GetParam(), 9, comm, true, Dtype::f32);
                   run_both(GetParam(), comm, {}, problem);
                   // An output is a sum of so many terms up to 1, one of which is 8 for a while.
                   const double outputs = 9.0 * LayerProblem::kOutputs;
                   const tensor::Roundings way = {.terms = LayerProblem::kInputs + 1, .world = 2};
                   const double off = outputs * tensor::tolerance(way, LayerProblem::kInputs + 8.0);
                   const double allowed = 2 * off / (2 * kStep);  // of two losses, so far apart
                   for (const std::int64_t at_row : {0, 1, 3, 4}) {
                     for (const std::int64_t at_col : {1, 17, 40}) {
                       const double of_x =
                           difference(GetParam(), comm, problem, {problem.x(), at_row, at_col});
                       const double of_weight =
                           difference(GetParam(), comm, problem, {problem.w(), at_row, at_col});
                       if (comm.rank() != 0) continue;
                       EXPECT_NEAR(at(problem.grad_x.view, at_row, at_col), of_x, allowed);
                       EXPECT_NEAR(at(problem.grad_weight.view, at_row, at_col), of_weight,
                                   allowed);
                     }
                   }
                 },
                 {});
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
          run_both(GetParam(), comm, {.operators = {.plan = parse_plan("serial")}}, serial);
          for (const bool keeps : {false, true}) {
            for (const char* plan : {"serial", "pipelined parts=3", "fused"}) {
              const LayerProblem one(GetParam(), 100, comm);
              run_both(GetParam(), comm,
                       {.recompute_all_gather = !keeps,
                        .column_backward = keeps,
                        .operators = {.plan = parse_plan(plan)}},
                       one);
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
  run_as_threads(4,
                 [](Communicator& comm) {
                   auto neighbours = comm.split(comm.rank() / 2, comm.rank());
                   auto others = comm.split(comm.rank() % 2, comm.rank());
                   ASSERT_TRUE(neighbours && others);
                   const LayerProblem want(GetParam(), 30, *neighbours);
                   run_both(GetParam(), *neighbours, {}, want);
                   std::vector<std::unique_ptr<LayerProblem>> got;
                   std::vector<LinearState> states(2);
                   std::vector<Communicator*> groups = {&*neighbours, &*others};
                   got.reserve(groups.size());
                   for (Communicator* group : groups)
                     got.push_back(std::make_unique<LayerProblem>(GetParam(), 30, *group));
                   if (GetParam() == LayerKind::column) {
                     ColumnParallelLinear first(got[0]->weight(), *groups[0]);
                     ColumnParallelLinear second(got[1]->weight(), *groups[1]);
                     first.forward(got[0]->forward(), states.data());
                     second.forward(got[1]->forward(), &states[1]);
                     first.backward(got[0]->backward(), states[0]);
                     second.backward(got[1]->backward(), states[1]);
                   } else {
                     RowParallelLinear first(got[0]->weight(), *groups[0]);
                     RowParallelLinear second(got[1]->weight(), *groups[1]);
                     first.forward(got[0]->forward(), states.data());
                     second.forward(got[1]->forward(), &states[1]);
                     first.backward(got[0]->backward(), states[0]);
                     second.backward(got[1]->backward(), states[1]);
                   }
                   EXPECT_TRUE(tensor::same_bits(got[0]->out.view, want.out.view));
                   EXPECT_TRUE(tensor::same_bits(got[0]->grad_x.view, want.grad_x.view));
                   EXPECT_TRUE(tensor::same_bits(got[0]->grad_weight.view, want.grad_weight.view));
                   // Ranks 0 and 3 stand in both groups where they did; 1 and 2 have the other half
                   if (comm.rank() != 0 && comm.rank() != 3) return;
                   EXPECT_TRUE(tensor::same_bits(got[1]->out.view, want.out.view));
                   EXPECT_TRUE(tensor::same_bits(got[1]->grad_x.view, want.grad_x.view));
                   EXPECT_TRUE(tensor::same_bits(got[1]->grad_weight.view, want.grad_weight.view));
                 },
                 {});
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
  run_as_threads(2,
                 [](Communicator& comm) {
                   const Asked plans;
                   const LayerProblem problem(GetParam(), 64, comm);
                   run_both(GetParam(), comm,
                            {.column_backward = true, .operators = {.plans = &plans}}, problem);
                   ASSERT_EQ(plans.asked.size(), 2U);
                   const bool column = GetParam() == LayerKind::column;
                   const PlanKey& forward = plans.asked[0];
                   EXPECT_EQ(forward.op, column ? Operator::all_gather_matmul
                                                : Operator::matmul_reduce_scatter);
                   EXPECT_EQ(forward.m, 64);
                   EXPECT_EQ(forward.n, LayerProblem::kOutputs);
                   EXPECT_EQ(forward.k, LayerProblem::kInputs);
                   const PlanKey& backward = plans.asked[1];
                   EXPECT_EQ(backward.op, column ? Operator::matmul_reduce_scatter
                                                 : Operator::all_gather_matmul);
                   EXPECT_EQ(backward.m, 64);
                   EXPECT_EQ(backward.n, LayerProblem::kInputs);
                   EXPECT_EQ(backward.k, LayerProblem::kOutputs);
                   for (const PlanKey& key : plans.asked) EXPECT_EQ(key.weight, "bf16:plain");
                 },
                 {});
}

// An 8-bit weight is frozen; what flows through it backward takes it the other way round.
TEST_P(EveryLayer, TakesAFrozenQuantisedWeight) {
  run_as_threads(
      2,
      [](Communicator& comm) {
        const LayerProblem problem(GetParam(), 20, comm);
        const auto scheme = *parse_quant_scheme("s8:channel");
        const QuantizedWeight quantized =
            quantize({.view = problem.w(), .layout = WeightLayout::out_in}, scheme);
        const PackedWeight packed(quantized);
        const PackedWeight turned({.view = problem.w(), .layout = WeightLayout::in_out});
        const LinearWeight weight = {.weight = std::cref(packed), .backward = std::cref(turned)};
        const LinearBackward call = {.grad_out = problem.grad_out(), .grad_x = problem.grad_x.view};
        const LayerProblem plain(GetParam(), 20, comm);
        run_both(GetParam(), comm, {}, plain);
        LinearState state;
        if (GetParam() == LayerKind::column) {
          ColumnParallelLinear layer(weight, comm);
          layer.forward(problem.forward(), &state);
          layer.backward(call, state);
        } else {
          RowParallelLinear layer(weight, comm);
          layer.forward(problem.forward(), &state);
          layer.backward(call, state);
        }
        EXPECT_TRUE(tensor::same_bits(problem.grad_x.view, plain.grad_x.view));
        // A quantised weight is at most half a step of its column off: 1/254 of the largest.
        for (std::int64_t i = 0; i < problem.out.view.rows; ++i) {
          EXPECT_NEAR(at(problem.out.view, i, 0), at(plain.out.view, i, 0),
                      LayerProblem::kInputs / 254.0 + 0.1);
        }
      },
      {});
}

TEST(LinearState, IsUsedAgainWithItsMemory) {
  run_as_threads(2,
                 [](Communicator& comm) {
                   const LayerProblem problem(LayerKind::column, 40, comm);
                   ColumnParallelLinear layer(problem.weight(), comm,
                                              {.recompute_all_gather = false});
                   LinearState state;
                   layer.forward(problem.forward(), &state);
                   layer.backward(problem.backward(), state);
                   const std::size_t held = state.held_bytes();
                   const LayerProblem again(LayerKind::column, 40, comm);
                   layer.forward(again.forward(), &state);
                   layer.backward(again.backward(), state);
                   EXPECT_EQ(state.held_bytes(), held);
                   EXPECT_TRUE(tensor::same_bits(again.grad_weight.view, problem.grad_weight.view));
                 },
                 {});
}

}  // namespace
}  // namespace plait
