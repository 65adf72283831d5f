// The reference against sums that are worked out by hand. The backends' tests compare it with sums
// in double.
#include "gemm/reference.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "plait/packed_weight.h"

namespace plait::gemm {
namespace {

ConstTensorView view_of(const std::vector<float>& values, std::int64_t cols) {
  return {.data = values.data(),
          .dtype = Dtype::f32,
          .rows = static_cast<std::int64_t>(values.size()) / cols,
          .cols = cols,
          .row_stride = cols};
}

Task task_of(const GemmCall& call, Range rows, Range columns, const float* bias = nullptr) {
  const Depth depth = {.k = call.x.k()};
  return {.call = call,
          .rows = rows,
          .columns = columns,
          .depth = depth,
          .leaves = Leaves(depth),
          .bias = bias,
          .threads = 1};
}

const std::vector<float> kX = {1, 2, 3,  //
                               4, 5, 6};
const std::vector<float> kTurnedX = {1, 4,  //
                                     2, 5,  //
                                     3, 6};
const std::vector<float> kInOut = {1,   0,   //
                                   0,   10,  //
                                   100, 1000};
const std::vector<float> kOutIn = {1, 0,  100,  //
                                   0, 10, 1000};
const std::vector<float> kProduct = {301, 3020, 604, 6050};

class Reference : public testing::Test {
 protected:
  TensorView out() {
    return {.data = out_.data(), .dtype = Dtype::f32, .rows = 2, .cols = 2, .row_stride = 2};
  }

  std::vector<float> out_ = {-1, -2, -3, -4};
};

TEST_F(Reference, ReadsBothLayoutsOfBothOperands) {
  for (const bool turned : {false, true}) {
    const GemmInput x = turned ? GemmInput{.view = view_of(kTurnedX, 2), .transposed = true}
                               : GemmInput{.view = view_of(kX, 3)};
    const WeightView in_out = {.view = view_of(kInOut, 2), .layout = WeightLayout::in_out};
    const WeightView out_in = {.view = view_of(kOutIn, 3), .layout = WeightLayout::out_in};
    const PackedWeight packed(in_out);
    for (const Weight& weight : {Weight(in_out), Weight(out_in), Weight(packed)}) {
      out_.assign(4, -1);
      const GemmCall call = {.x = x, .weight = weight, .out = out()};
      run_reference(task_of(call, {0, 2}, {0, 2}));
      EXPECT_EQ(out_, kProduct);
    }
  }
}

TEST_F(Reference, AddsTheBiasAndWhatIsThere) {
  const std::array<float, 2> bias = {0.5F, 0.25F};
  const GemmCall call = {.x = {.view = view_of(kX, 3)},
                         .weight = WeightView{view_of(kInOut, 2), WeightLayout::in_out},
                         .out = out(),
                         .accumulate = true};
  run_reference(task_of(call, {0, 2}, {0, 2}, bias.data()));
  EXPECT_EQ(out_, (std::vector<float>{300.5F, 3018.25F, 601.5F, 6046.25F}));
}

TEST_F(Reference, WritesAWindowFromTheFirstElementOn) {
  TensorView one = out();
  one.rows = 1;
  one.cols = 1;
  std::vector<Tile> tiles;
  const GemmCall call = {.x = {.view = view_of(kX, 3)},
                         .weight = WeightView{view_of(kInOut, 2), WeightLayout::in_out},
                         .out = one,
                         .window = {.rows = {1, 2}, .columns = {1, 2}},
                         .on_tile = [&](const Tile& tile) { tiles.push_back(tile); }};
  run_reference(task_of(call, {1, 2}, {1, 2}));
  EXPECT_EQ(out_, (std::vector<float>{6050, -2, -3, -4}));
  ASSERT_EQ(tiles.size(), 1U);
  EXPECT_EQ(tiles[0].rows, (Range{1, 2}));
  EXPECT_EQ(tiles[0].columns, (Range{1, 2}));
}

TEST_F(Reference, OfNoTermsIsTheBias) {
  const std::array<float, 2> bias = {7, 8};
  const GemmCall call = {
      .x = {.view = {.data = nullptr, .dtype = Dtype::f32, .rows = 2, .cols = 0, .row_stride = 0}},
      .weight =
          WeightView{{.data = nullptr, .dtype = Dtype::f32, .rows = 0, .cols = 2, .row_stride = 2},
                     WeightLayout::in_out},
      .out = out()};
  run_reference(task_of(call, {0, 2}, {0, 2}, bias.data()));
  EXPECT_EQ(out_, (std::vector<float>{7, 8, 7, 8}));
}

// k = 1024 has two leaves. In one chain, ones would be lost beside 2^24.
TEST_F(Reference, AddsLeavesInPairs) {
  std::vector<float> x(1024, 1);
  x[0] = 0x1p24F;
  const std::vector<float> w(1024, 1);
  const GemmCall call = {.x = {.view = view_of(x, 1024)},
                         .weight = WeightView{view_of(w, 1024), WeightLayout::out_in},
                         .out = out().row_range(0, 1).column_range(0, 1)};
  run_reference(task_of(call, {0, 1}, {0, 1}));
  EXPECT_EQ(out_[0], 0x1p24F + 512);
}

}  // namespace
}  // namespace plait::gemm
