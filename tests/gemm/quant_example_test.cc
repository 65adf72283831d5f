#include <gtest/gtest.h>
#include <plait/gemm.h>
#include <plait/quantized.h>

#include <array>

TEST(QuantExample, MultipliesAQuantisedLayer) {
  // [n = 2, k = 4]: a row per output.
  const std::array<float, 8> weight = {0.50F, -1.27F, 0.00F, 1.00F, 2.54F, 1.00F, -2.00F, 0.02F};
  const plait::WeightView view = {.view = plait::ConstTensorView::of(weight.data(), 2, 4),
                                  .layout = plait::WeightLayout::out_in};
  const plait::QuantizedWeight q = plait::quantize(view, *plait::parse_quant_scheme("s8:channel"));

  // Packed once; the product is made for the scheme.
  const plait::PackedWeight packed(q);
  plait::Gemm gemm = plait::select_gemm({.m = 1,
                                         .n = 2,
                                         .k = 4,
                                         .x = plait::Dtype::f32,
                                         .out = plait::Dtype::f32,
                                         .quant = q.scheme()});
  const std::array<float, 4> x = {1, 2, 3, 4};
  std::array<float, 2> y = {};
  gemm.run({.x = {plait::ConstTensorView::of(x.data(), 1, 4)},
            .weight = packed,
            .out = plait::TensorView::of(y.data(), 1, 2)});
  EXPECT_FLOAT_EQ(y[0], 1.96F);   // 0.50 - 2.54 + 4
  EXPECT_FLOAT_EQ(y[1], -1.38F);  // 2.54 + 2 - 6 + 0.08
}
