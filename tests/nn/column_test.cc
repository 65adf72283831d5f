// A column layer that keeps what it has gathered.
#include <gtest/gtest.h>

#include <utility>

#include "conformance/ranks.h"
#include "nn/layer.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

TEST(ColumnLayer, AWrongForwardThatWouldKeepItsGatherIsOnlyRefused) {
  run_as_threads(2, [](Communicator& comm) {
    const LayerProblem problem(LayerKind::column, 12, comm);
    ColumnParallelLinear layer(problem.desc(), comm, {.recompute_all_gather = false});
    LinearState state;
    LinearForward wrong = problem.forward();
    wrong.out.rows = -3;
    EXPECT_NE(sentence_of([&] { layer.forward(wrong, &state); }), "nothing was refused");
    wrong.out.rows = 1000;
    EXPECT_EQ(sentence_of([&] { layer.forward(wrong, &state); }),
              "all_gather_matmul: x is 6 x 96, not 500 x 96: of 1000 rows this rank has 500");
    EXPECT_EQ(state.held_bytes(), 0U);
    layer.forward(problem.forward(), &state);
    layer.backward(problem.backward(), &state);
  });
}

TEST(ColumnLayer, RefusesAGatherThatAnotherLayerHasKept) {
  run_as_threads(2, [](Communicator& comm) {
    const LayerProblem problem(LayerKind::column, 12, comm);
    const LinearOptions options = {.recompute_all_gather = false};
    const Matrix x(Dtype::bf16, 6, 7);
    const Matrix w(Dtype::bf16, 80, 7);
    ColumnParallelLinear other({.inputs = 7, .outputs = 80, .layout = WeightLayout::out_in}, comm,
                               options);
    LinearState state;
    other.forward(
        {.x = x.view, .weight = WeightView{w.view, WeightLayout::out_in}, .out = problem.out.view},
        &state);
    ColumnParallelLinear layer(problem.desc(), comm, options);
    EXPECT_EQ(sentence_of([&] { layer.backward(problem.backward(), &state); }),
              "ColumnParallelLinear: backward was given the state of another layer, "
              "whose x has 7 columns, not 96");
  });
}

TEST(ColumnLayer, AStateMovesWithWhatItKeeps) {
  run_as_threads(2, [](Communicator& comm) {
    const LayerProblem want(LayerKind::column, 12, comm);
    const LayerProblem got(LayerKind::column, 12, comm);
    ColumnParallelLinear layer(want.desc(), comm, {.recompute_all_gather = false});
    LinearState state;
    layer.forward(want.forward(), &state);
    layer.backward(want.backward(), &state);
    layer.forward(got.forward(), &state);
    const LinearState other = std::move(state);
    // NOLINTNEXTLINE(bugprone-use-after-move): that is the mistake
    EXPECT_EQ(sentence_of([&] {
                layer.backward(got.backward(), &state);  // NOLINT: on purpose
              }),
              "ColumnParallelLinear: backward was given a state that was moved to "
              "another");
    layer.backward(got.backward(), &other);
    expect_same(got, want, "moved");
  });
}

}  // namespace
}  // namespace plait
