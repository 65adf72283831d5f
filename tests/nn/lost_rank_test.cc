// A rank that is lost in the middle of a step: the others say which, and don't wait for their
// deadline.
#include <gtest/gtest.h>

#include <string>

#include "comm/session/state.h"
#include "conformance/lost_ranks.h"
#include "nn/gradients.h"
#include "nn/layer.h"
#include "plait/error.h"

namespace plait {
namespace {

struct Scene {
  const char* name;
  LayerKind kind;
  LinearOptions options;
};

void PrintTo(const Scene& scene, std::ostream* out) { *out << scene.name; }  // NOLINT: gtest's name

class EveryStep : public testing::TestWithParam<Scene> {};

INSTANTIATE_TEST_SUITE_P(
    Nn, EveryStep,
    testing::Values(Scene{"Column", LayerKind::column, {}},
                    Scene{"ColumnWithOperator", LayerKind::column, {.column_backward = true}},
                    Scene{"ColumnWithAllRows", LayerKind::column, {.sequence_parallel = false}},
                    Scene{"Row", LayerKind::row, {}}),
    [](const auto& one) { return std::string(one.param.name); });

// Rank 1 dies between forward and backward; a deadline is a minute away.
TEST_P(EveryStep, NoticesADeathBeforeBackward) {
  run_in_processes(3, [](Communicator& comm) {
    const LayerProblem problem(GetParam().kind, 300, comm, GetParam().options.sequence_parallel);
    with_layer(GetParam().kind, problem.desc(), comm, GetParam().options, [&](auto layer) {
      LinearState state;
      // All have their layer when rank 1 leaves the barrier: some forwards don't communicate.
      if (comm.rank() == 1) {
        layer.forward(problem.forward(), &state);
        barrier(comm);
        die();
      }
      // A rank that is still in the barrier when another has noticed gets the error there.
      expect_loss_of(1, [&] {
        layer.forward(problem.forward(), &state);
        barrier(comm);
        layer.backward(problem.backward(), &state);
      });
    });
  });
}

// A late rank that makes a weight's gradient, as the deadline's sentence has it.
TEST(ALateRank, MultipliesForAGradient) {
  expect_that_a_late_rank_multiplies([](Communicator& comm, const auto& hook) {
    const Matrix grad_out(Dtype::bf16, 512, 768, 1);
    const Matrix x(Dtype::bf16, 512, 768, 2);
    const Matrix to(Dtype::f32, 768, 768);
    nn::Workspace workspace;
    nn::run({.grad_out = grad_out.view,
             .x = x.view,
             .to = to.view,
             .layout = WeightLayout::out_in,
             .accumulate = false},
            workspace, {.gemm = {}, .group = comm.state().group()}, hook);
  });
}

}  // namespace
}  // namespace plait
