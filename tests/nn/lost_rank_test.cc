// A rank that is lost in the middle of a step: the others say who, and don't wait for their
// deadline.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "conformance/ranks.h"
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
    const auto run = [&](auto layer) {
      LinearState state;
      if (rank == 1) {
        layer.forward(problem.forward(), &state);
        _exit(0);
      }
      // Whoever is still in forward when another has noticed it hears of it there.
      const Error error = expect_error(Code::peer_lost, [&] {
        layer.forward(problem.forward(), &state);
        layer.backward(problem.backward(), &state);
      });
      EXPECT_EQ(error.culprit(), 1) << error.what();
      EXPECT_TRUE(contains(error.what(), "rank 1")) << error.what();
    };
    if (GetParam().kind == LayerKind::column) {
      run(ColumnParallelLinear(problem.desc(), comm, GetParam().options));
    } else {
      run(RowParallelLinear(problem.desc(), comm, GetParam().options));
    }
  });
}

}  // namespace
}  // namespace plait
