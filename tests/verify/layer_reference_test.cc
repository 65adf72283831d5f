#include "verify/layer_reference.h"

#include <gtest/gtest.h>

#include "plait/buffer.h"
#include "verify/layer_case.h"

namespace plait::verify {
namespace {

// Ranks have other parts of what a gradient holds before backward, and all of that is expected.
TEST(LayerReference, AddsToWhatAGradientHolds) {
  LayerCase one;
  one.seed = 7;
  one.m = 9;
  one.shares = {5, 6};
  one.other = 8;
  one.accumulate = true;
  one.layout = WeightLayout::out_in;
  one.grad_weight = Dtype::f32;
  for (const int rank : {0, 1}) {
    const LayerOperands operands(one, rank);
    const LayerReference reference(one, operands, 2);
    const Buffer memory(static_cast<std::size_t>(one.shares[rank] * one.other) * sizeof(float));
    const TensorView gradient = memory.view(Dtype::f32, one.shares[rank], one.other);
    reference.fill_before(gradient, reference.weight_origin());
    constexpr std::int64_t kOutput = 3;
    constexpr std::int64_t kInput = 5;
    double sum = element(gradient, kOutput, kInput);
    EXPECT_NE(sum, 0);
    for (std::int64_t row = 0; row < one.m; ++row) {
      sum += operands.grad_out_at(0, row, operands.own_outputs().begin + kOutput) *
             operands.x_at(0, row, kInput);
    }
    const auto want = reference.grad_weight_at(0, kOutput, kInput, {.row = kOutput, .col = kInput});
    EXPECT_EQ(want.what_is_wrong_with(sum), "");
    EXPECT_NE(want.what_is_wrong_with(sum + 1), "");
  }
}

}  // namespace
}  // namespace plait::verify
