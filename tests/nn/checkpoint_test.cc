// Trainers between a forward and its backward: they free the x, make an equal one elsewhere, move
// the weight, and keep no state.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>

#include "conformance/ranks.h"
#include "nn/layer.h"

namespace plait {
namespace {

// A copy in memory of its own, without gaps, that can be spoilt and freed.
class Copy {
 public:
  explicit Copy(const ConstTensorView& from) : matrix_(from.dtype, from.rows, from.cols) {
    for (std::int64_t row = 0; row < from.rows && from.cols > 0; ++row)
      std::memcpy(matrix_.view.row(row), from.row(row), from.row_bytes());
  }
  const TensorView& view() const { return matrix_.view; }
  void spoil() const {
    if (view().bytes() > 0) std::memset(view().data, 0x7F, view().bytes());
  }

 private:
  Matrix matrix_;
};

struct Way {
  LayerKind kind;
  LinearOptions options;
};

std::string name_of(const Way& way) {
  std::string text = name_of(way.kind);
  if (!way.options.sequence_parallel) text += "WithAllRows";
  if (!way.options.recompute_all_gather) text += "ThatKeeps";
  if (way.options.column_backward) text += "WithOperator";
  return text;
}

class Trainers : public testing::TestWithParam<Way> {
 protected:
  static LayerProblem problem(Communicator& comm) {
    return {GetParam().kind, 45, comm, GetParam().options.sequence_parallel};
  }

  template <class Body>
  static void with_layer(const LinearDesc& desc, Communicator& comm, const Body& body) {
    plait::with_layer(GetParam().kind, desc, comm, GetParam().options, body);
  }
};

INSTANTIATE_TEST_SUITE_P(Nn, Trainers,
                         testing::Values(Way{LayerKind::column, {}},
                                         Way{LayerKind::column, {.column_backward = true}},
                                         Way{LayerKind::column, {.recompute_all_gather = false}},
                                         Way{LayerKind::column, {.sequence_parallel = false}},
                                         Way{LayerKind::row, {}},
                                         Way{LayerKind::row, {.sequence_parallel = false}}),
                         [](const auto& one) { return name_of(one.param); });

TEST_P(Trainers, MayFreeTheXOfAForwardAndBringAnEqualOne) {
  run_as_threads(3, [](Communicator& comm) {
    const LayerProblem want = problem(comm);
    run_step(want, comm, GetParam().options);
    for (const bool has_state : {true, false}) {
      const LayerProblem got = problem(comm);
      with_layer(got.desc(), comm, [&](auto layer) {
        LinearState state;
        LinearForward forward = got.forward();
        auto first = std::make_unique<Copy>(got.x());
        forward.x = first->view();
        layer.forward(forward, &state);
        first->spoil();
        const Copy second(got.x());
        first.reset();
        LinearBackward backward = got.backward();
        backward.x = second.view();
        layer.backward(backward, has_state ? &state : nullptr);
      });
      expect_same(got, want, has_state ? "with its state" : "without a state");
    }
  });
}

TEST_P(Trainers, MayMoveTheWeightBetweenCalls) {
  run_as_threads(2, [](Communicator& comm) {
    const LayerProblem want = problem(comm);
    run_step(want, comm, GetParam().options);
    const LayerProblem got = problem(comm);
    with_layer(got.desc(), comm, [&](auto layer) {
      LinearForward forward = got.forward();
      auto first = std::make_unique<Copy>(got.w());
      forward.weight = WeightView{first->view(), WeightLayout::out_in};
      layer.forward(forward);
      first->spoil();
      const Copy second(got.w());
      first.reset();
      LinearBackward backward = got.backward();
      backward.weight = WeightView{second.view(), WeightLayout::out_in};
      layer.backward(backward);
    });
    expect_same(got, want, "moved");
  });
}

// Packed once for each direction, as a trainer does for each version of a weight.
TEST_P(Trainers, MayPackAWeightThatHasAGradient) {
  run_as_threads(2, [](Communicator& comm) {
    const LayerProblem want = problem(comm);
    run_step(want, comm, GetParam().options);
    const LayerProblem got = problem(comm);
    const PackedWeight packed(got.weight(), 1);
    const PackedWeight turned(got.weight().turned(), 1);
    LinearDesc desc = got.desc();
    desc.weight = Weight(packed).kind();
    desc.turned = Weight(turned).kind();
    with_layer(desc, comm, [&](auto layer) {
      LinearForward forward = got.forward();
      forward.weight = packed;
      layer.forward(forward);
      LinearBackward backward = got.backward();
      backward.weight = {};
      backward.turned = turned;
      layer.backward(backward);
    });
    expect_same(got, want, "packed");
  });
}

// The elements of the transposed gradient, in the other layout.
TEST_P(Trainers, GetTheGradientInTheLayoutOfTheLayer) {
  run_as_threads(2, [](Communicator& comm) {
    const LayerProblem want = problem(comm);
    run_step(want, comm, GetParam().options);
    const LayerProblem got = problem(comm);
    const PackedWeight packed(got.weight(), 1);
    LinearDesc desc = got.desc();
    desc.layout = WeightLayout::in_out;
    desc.weight = Weight(packed).kind();
    const Matrix gradient(Dtype::f32, desc.inputs, desc.outputs);
    with_layer(desc, comm, [&](auto layer) {
      layer.backward({.x = got.x(), .grad_out = got.grad_out(), .grad_weight = gradient.view});
    });
    for (std::int64_t i = 0; i < desc.inputs; ++i) {
      for (std::int64_t j = 0; j < desc.outputs; ++j)
        ASSERT_EQ(at(gradient.view, i, j), at(want.grad_weight.view, j, i));
    }
  });
}

}  // namespace
}  // namespace plait
