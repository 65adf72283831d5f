// A rank that is lost in the middle of a step: the others say which, and don't wait for their
// deadline.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "comm/state.h"
#include "conformance/ranks.h"
#include "nn/gradients.h"
#include "nn/layer.h"
#include "plait/error.h"

namespace plait {
namespace {

using conformance::contains;
using conformance::expect_error;
using conformance::fork_ranks;
using conformance::fresh_job;

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
  const std::string job = fresh_job();
  fork_ranks(3, [&](int rank) {
    Communicator comm = Communicator::connect(
        {.transport = "shm", .place = Place{.rank = rank, .world = 3, .job = job}});
    const LayerProblem problem(GetParam().kind, 300, comm, GetParam().options.sequence_parallel);
    with_layer(GetParam().kind, problem.desc(), comm, GetParam().options, [&](auto layer) {
      LinearState state;
      // All have their layer when rank 1 leaves the barrier: some forwards don't communicate.
      if (rank == 1) {
        layer.forward(problem.forward(), &state);
        barrier(comm);
        _exit(0);
      }
      // A rank that is still in the barrier when another has noticed gets the error there.
      const Error error = expect_error(Code::peer_lost, [&] {
        layer.forward(problem.forward(), &state);
        barrier(comm);
        layer.backward(problem.backward(), &state);
      });
      EXPECT_EQ(error.culprit(), 1) << error.what();
      EXPECT_TRUE(contains(error.what(), "rank 1")) << error.what();
    });
  });
}

// A late rank that makes a weight's gradient, as the deadline's sentence has it.
TEST(ALateRank, MultipliesForAGradient) {
  std::atomic<bool> multiplies{false};
  std::atomic<bool> has_ended{false};
  conformance::run_as_threads(2, [&](Communicator& comm) {
    barrier(comm);
    if (comm.rank() == 0) {
      while (!multiplies) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      conformance::set_timeout(comm, std::chrono::milliseconds(300));
      const Error error = expect_error(Code::timeout, [&] { barrier(comm); });
      has_ended = true;
      EXPECT_EQ(error.culprit(), 1) << error.what();
      EXPECT_TRUE(
          contains(error.what(), "rank 1 multiplies; its last call of this group is barrier; "))
          << error.what();
      return;
    }
    const Matrix grad_out(Dtype::bf16, 512, 768, 1);
    const Matrix x(Dtype::bf16, 512, 768, 2);
    const Matrix to(Dtype::f32, 768, 768);
    nn::Workspace workspace;
    int looks = 0;
    // Other threads may do most of a product.
    while (looks < 2) {
      nn::run({.grad_out = grad_out.view,
               .x = x.view,
               .to = to.view,
               .layout = WeightLayout::out_in,
               .accumulate = false},
              workspace, {.gemm = {}, .group = comm.state().group()}, [&] {
                if (++looks != 2) return;
                multiplies = true;
                while (!has_ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
              });
    }
  });
}

}  // namespace
}  // namespace plait
