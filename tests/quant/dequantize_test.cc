#include <gtest/gtest.h>

#include "plait/quantized.h"
#include "quant/weights.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

constexpr std::int64_t kN = 37;
constexpr std::int64_t kK = 301;

float uneven(std::int64_t column, std::int64_t k) {
  return static_cast<float>((column * 97 + k * 31) % 613) * 0.0137F - 2.0F;
}

QuantizedWeight quantized(const QuantScheme& scheme) {
  return quantize(make_weight(kN, kK, uneven).view(), scheme);
}

TEST(Dequantize, MultipliesInF32AndConverts) {
  for (const QuantScheme& scheme : all_schemes(48)) {
    const QuantizedWeight weight = quantized(scheme);
    const auto expected = [&](std::int64_t column, std::int64_t k) {
      const int whole = weight.value(column, k) + weight.offset(column, k);
      return static_cast<float>(whole) * weight.scale(column, k);
    };
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
      for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
        const Lie lie = {.dtype = dtype, .layout = layout, .gap = 3};
        const OwnedWeight out = empty_weight(kN, kK, lie);
        weight.dequantize(out.out, layout);
        EXPECT_EQ(bytes_of(out.out), bytes_of(make_weight(kN, kK, expected, lie).out))
            << name(scheme) << " to " << name(dtype) << " in " << name(layout);
        const TensorView gap = {.data = out.out.column_range(out.out.cols, out.out.cols).data,
                                .dtype = dtype,
                                .rows = out.out.rows - 1,
                                .cols = 3,
                                .row_stride = out.out.row_stride};
        for (const std::byte byte : bytes_of(gap)) ASSERT_EQ(byte, std::byte{0xff});
      }
    }
  }
}

TEST(Dequantize, OfNothingTouchesNothing) {
  const QuantizedWeight weight = quantize(empty_weight(0, 5).view(), {});
  EXPECT_NO_THROW(weight.dequantize({.rows = 0, .cols = 5}, WeightLayout::out_in));
  EXPECT_NO_THROW(weight.dequantize({.rows = 5, .cols = 0}, WeightLayout::in_out));
  EXPECT_NO_THROW(QuantizedWeight().dequantize({}, WeightLayout::out_in));
}

TEST(Dequantize, RefusesOutputsThatDoNotFit) {
  const QuantizedWeight weight = quantized({});
  const OwnedWeight out = empty_weight(kN, kK);
  EXPECT_EQ(sentence_of([&] { weight.dequantize(out.out, WeightLayout::in_out); }),
            "dequantize: out is 37 x 301 but the weight in in_out is 301 x 37");
  TensorView bad = out.out;
  bad.rows = 36;
  EXPECT_EQ(sentence_of([&] { weight.dequantize(bad, WeightLayout::out_in); }),
            "dequantize: out is 36 x 301 but the weight in out_in is 37 x 301");
  bad = out.out;
  bad.dtype = Dtype::s8;
  EXPECT_EQ(sentence_of([&] { weight.dequantize(bad, WeightLayout::out_in); }),
            "dequantize: out is s8; it must be f32, bf16 or f16");
  bad = out.out;
  bad.data = nullptr;
  EXPECT_EQ(sentence_of([&] { weight.dequantize(bad, WeightLayout::out_in); }),
            "dequantize: out is 37 x 301 but its data is null");
  EXPECT_EQ(sentence_of([&] { weight.dequantize(out.out, static_cast<WeightLayout>(4)); }),
            "dequantize: out has the unknown layout 4");
  EXPECT_EQ(sentence_of([&] { weight.dequantize(out.out, WeightLayout::out_in, 1025); }),
            "dequantize: threads=1025 is not between 0 and 1024");
}

}  // namespace
}  // namespace plait
