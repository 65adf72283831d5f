#include <gtest/gtest.h>
#include <plait/quantized.h>

#include <array>

TEST(Quantisation, OfALayerWithTwoOutputs) {
  // [n = 2, k = 4]: a row per output, as Megatron stores it.
  const std::array<float, 8> weight = {0.50F, -1.27F, 0.004F, 0.00F, 2.54F, 1.00F, -2.00F, 0.03F};
  const plait::WeightView view = {.view = plait::ConstTensorView::of(weight.data(), 2, 4),
                                  .layout = plait::WeightLayout::out_in};

  const plait::QuantizedWeight q = plait::quantize(view, *plait::parse_quant_scheme("s8:channel"));
  EXPECT_FLOAT_EQ(q.scale(0, 0), 0.01F);  // 1.27 / 127
  EXPECT_FLOAT_EQ(q.scale(1, 0), 0.02F);  // 2.54 / 127
  EXPECT_EQ(q.value(0, 1), -127);
  EXPECT_EQ(q.value(0, 2), 0);  // 0.004 is nearer to 0 than to 0.01
  EXPECT_EQ(q.value(1, 1), 50);

  // A weight that was quantised elsewhere is given by its parts.
  const auto same = plait::QuantizedWeight::from_parts(
      q.scheme(), 2, 4,
      {.values = q.values(), .layout = plait::WeightLayout::out_in, .scales = q.scales()});
  std::array<float, 8> back = {};
  same.dequantize(plait::TensorView::of(back.data(), 2, 4), plait::WeightLayout::out_in);
  EXPECT_FLOAT_EQ(back[0], 0.50F);
  EXPECT_EQ(back[2], 0);
}
