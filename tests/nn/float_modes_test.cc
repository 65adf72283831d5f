// Layers don't depend on how the threads of the ranks round and treat denormals: not either where a
// sum is now taken beside a product and now in a wait.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/ranks.h"
#include "nn/layer.h"
#include "tensor/compare.h"
#include "tensor/copy_rows.h"
#include "tensor/float_modes.h"

namespace plait {
namespace {

constexpr int kWorld = 3;
constexpr int kRuns = 3;

struct LayersModes {
  LayerKind kind;
  bool sequence_parallel;
};

void scale(const TensorView& view, float by) {
  for (std::int64_t row = 0; row < view.rows; ++row) {
    auto* values = static_cast<float*>(view.row(row));
    for (std::int64_t col = 0; col < view.cols; ++col) values[col] *= by;
  }
}

class FloatModesOfLayers : public testing::TestWithParam<LayersModes> {};

INSTANTIATE_TEST_SUITE_P(
    Nn, FloatModesOfLayers,
    testing::Values(LayersModes{LayerKind::column, true}, LayersModes{LayerKind::column, false},
                    LayersModes{LayerKind::row, true}, LayersModes{LayerKind::row, false}),
    [](const auto& one) {
      return name_of(one.param.kind) + (one.param.sequence_parallel ? "SequenceParallel" : "");
    });

template <class Layer>
void run_layer(Communicator& comm, const LayersModes& which) {
  const LayerProblem problem(which.kind, 37, comm, which.sequence_parallel, Dtype::f32);
  // Sums of which some are denormal, and some of their parts.
  scale(problem.all_grad_out.view, 0x1p-126F);
  Layer layer(problem.desc(), comm, {.sequence_parallel = which.sequence_parallel});
  LinearState state;
  const auto copies = [&] {
    std::vector<Matrix> all;
    for (const Matrix* one :
         {&problem.out, &problem.grad_x, &problem.grad_weight, &problem.grad_bias}) {
      all.emplace_back(Dtype::f32, one->view.rows, one->view.cols);
      tensor::copy_rows(one->view, all.back().view);
    }
    return all;
  };
  const auto run = [&] {
    layer.forward(problem.forward(), &state);
    layer.backward(problem.backward(), &state);
  };
  run();
  const std::vector<Matrix> usual = copies();
  for (const FloatMode& mode : float_modes()) {
    for (const int odd_one : {-1, 1}) {  // in the mode alone; -1: all are
      for (int i = 0; i < kRuns; ++i) {
        const bool enters = odd_one < 0 || odd_one == comm.rank();
        if (enters) mode.enter();
        const auto before = float_control();
        run();
        const auto after = float_control();
        if (enters) mode.leave();
        EXPECT_EQ(before, after) << mode.name;
        const std::vector<Matrix> now = copies();
        for (std::size_t what = 0; what < now.size(); ++what) {
          EXPECT_TRUE(tensor::same_bits(now[what].view, usual[what].view))
              << "result " << what << ", " << mode.name << " on rank " << odd_one;
        }
      }
    }
  }
}

TEST_P(FloatModesOfLayers, ChangeNoBit) {
  run_as_threads(kWorld, [](Communicator& comm) {
    if (GetParam().kind == LayerKind::column) {
      run_layer<ColumnParallelLinear>(comm, GetParam());
    } else {
      run_layer<RowParallelLinear>(comm, GetParam());
    }
  });
}

}  // namespace
}  // namespace plait
