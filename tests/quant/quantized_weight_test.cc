#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <utility>

#include "plait/quantized.h"
#include "quant/weights.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

float uneven(std::int64_t column, std::int64_t k) {
  return static_cast<float>((column * 97 + k * 31) % 613) * 0.0137F - 2.0F;
}

template <class T, std::size_t Size>
ConstTensorView view_of(const std::array<T, Size>& data, std::int64_t rows, std::int64_t cols) {
  return {
      .data = data.data(), .dtype = kDtypeOf<T>, .rows = rows, .cols = cols, .row_stride = cols};
}

// n = 3, k = 5 in groups of 2, with offsets; each test makes one thing wrong.
struct Given {
  std::array<std::int8_t, 64> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  std::array<float, 64> scales = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::array<std::int8_t, 64> offsets = {7, -8, 3, 0, 1, 2, -1, -2, 5};
  QuantScheme scheme = {.bits = 8, .per = QuantPer::group, .group = 2, .offsets = true};
  std::int64_t n = 3;
  std::int64_t k = 5;
  QuantizedParts parts = {.values = view_of(values, 3, 5),
                          .layout = WeightLayout::out_in,
                          .scales = view_of(scales, 3, 3),
                          .offsets = view_of(offsets, 3, 3)};

  Given() = default;
  Given(const Given&) = delete;  // the views point inside
  Given& operator=(const Given&) = delete;

  QuantizedWeight make() const { return QuantizedWeight::from_parts(scheme, n, k, parts); }
  std::string refusal() const {
    return sentence_of([this] { make(); });
  }
};

TEST(FromParts, RefusesThreadsThatNobodyCanMean) {
  const Given given;
  EXPECT_EQ(sentence_of([&] {
              QuantizedWeight::from_parts(given.scheme, given.n, given.k, given.parts, -1);
            }),
            "quantized weight: threads=-1 is not between 0 and 1024");
}

TEST(FromParts, KeepsWhatItIsGiven) {
  const Given given;
  const QuantizedWeight weight = given.make();
  EXPECT_EQ(weight.scheme(), given.scheme);
  EXPECT_EQ(weight.groups(), 3);
  EXPECT_EQ(weight.value(1, 0), 6);
  EXPECT_EQ(weight.value(2, 4), 15);
  EXPECT_EQ(weight.scale(0, 1), 1);
  EXPECT_EQ(weight.scale(2, 3), 6);
  EXPECT_EQ(weight.scale(1, 4), 8);
  EXPECT_EQ(weight.offset(1, 1), -8);
  EXPECT_EQ(weight.offset(2, 4), 5);
}

TEST(FromParts, ReadsInOut) {
  Given given;
  given.parts.values = view_of(given.values, 5, 3);
  given.parts.layout = WeightLayout::in_out;
  const QuantizedWeight weight = given.make();
  EXPECT_EQ(weight.value(1, 0), 2);
  EXPECT_EQ(weight.value(2, 4), 15);
}

TEST(FromParts, ReadsFourBitsInBothLayoutsWithOddSizes) {
  // The columns are 1 2 3 4 5 | -1 -2 -3 -4 -5 | 7 -8 0 1 -1, with 0xX in unused halves.
  const std::array<std::int8_t, 9> out_in = {0x21, 0x43,  0x55, -0x11, -0x33,
                                             0x6b, -0x79, 0x10, 0x5f};
  const std::array<std::int8_t, 10> in_out = {-0x0f, 0x57,  -0x1e, 0x58,  -0x2d,
                                              0x50,  -0x3c, 0x51,  -0x4b, 0x5f};
  const auto expected = [](std::int64_t column, std::int64_t k) {
    const std::array<std::array<int, 5>, 3> all = {
        {{1, 2, 3, 4, 5}, {-1, -2, -3, -4, -5}, {7, -8, 0, 1, -1}}};
    return all.at(static_cast<std::size_t>(column)).at(static_cast<std::size_t>(k));
  };
  Given given;
  given.scheme.bits = 4;
  given.parts.values = view_of(out_in, 3, 3);
  const QuantizedWeight one = given.make();
  given.parts.values = view_of(in_out, 5, 2);
  given.parts.layout = WeightLayout::in_out;
  const QuantizedWeight other = given.make();
  for (std::int64_t j = 0; j < 3; ++j) {
    for (std::int64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(one.value(j, i), expected(j, i)) << j << ", " << i;
      EXPECT_EQ(other.value(j, i), expected(j, i)) << j << ", " << i;
    }
  }
  EXPECT_TRUE(same_weight(one, other));  // including the unused half
}

TEST(FromParts, TakesScalesOfEveryDtype) {
  Given given;
  std::array<Bf16, 9> bf16 = {};
  std::array<F16, 9> f16 = {};
  convert(given.scales.data(), Dtype::f32, bf16.data(), Dtype::bf16, 9);
  convert(given.scales.data(), Dtype::f32, f16.data(), Dtype::f16, 9);
  const QuantizedWeight from_f32 = given.make();
  given.parts.scales = view_of(bf16, 3, 3);
  EXPECT_TRUE(same_weight(given.make(), from_f32));
  given.parts.scales = view_of(f16, 3, 3);
  EXPECT_TRUE(same_weight(given.make(), from_f32));
}

TEST(FromParts, TakesNegativeAndZeroScales) {
  Given given;
  given.scales[0] = -2;
  given.scales[1] = 0;
  const QuantizedWeight weight = given.make();
  EXPECT_EQ(weight.scale(0, 0), -2);
  EXPECT_EQ(weight.scale(1, 0), 0);
}

TEST(FromParts, SpreadsTheOneScaleOfATensor) {
  Given given;
  given.scheme = {.per = QuantPer::tensor, .offsets = true};
  given.parts.scales = view_of(given.scales, 1, 1);
  given.parts.offsets = view_of(given.offsets, 1, 1);
  const QuantizedWeight weight = given.make();
  EXPECT_EQ(weight.scales().cols, 3);
  EXPECT_EQ(weight.scale(2, 4), 1);
  EXPECT_EQ(weight.offset(2, 4), 7);
}

TEST(FromParts, ReadsViewsWithGaps) {
  Given given;
  const QuantizedWeight dense = given.make();
  std::array<std::int8_t, 64> values = {};
  std::array<float, 64> scales = {};
  std::array<std::int8_t, 64> offsets = {};
  scales.fill(std::numeric_limits<float>::quiet_NaN());
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t i = 0; i < 5; ++i) values.at(row * 7 + i) = given.values.at(row * 5 + i);
    for (std::size_t j = 0; j < 3; ++j) scales.at(row * 5 + j) = given.scales.at(row * 3 + j);
    for (std::size_t j = 0; j < 3; ++j) offsets.at(row * 4 + j) = given.offsets.at(row * 3 + j);
  }
  given.parts.values = view_of(values, 3, 7).column_range(0, 5);
  given.parts.scales = view_of(scales, 3, 5).column_range(0, 3);
  given.parts.offsets = view_of(offsets, 3, 4).column_range(0, 3);
  EXPECT_TRUE(same_weight(given.make(), dense));
}

TEST(FromParts, RoundTripsWhatQuantizeMakes) {
  for (const auto& [n, k] :
       {std::pair{1, 1}, std::pair{37, 301}, std::pair{64, 512}, std::pair{2, 3}}) {
    const OwnedWeight weight = make_weight(n, k, uneven);
    for (const std::int64_t group : {1, 2, 100, 1000}) {
      for (const QuantScheme& scheme : all_schemes(group)) {
        const QuantizedWeight made = quantize(weight.view(), scheme);
        EXPECT_TRUE(same_weight(QuantizedWeight::from_parts(scheme, n, k, parts_of(made)), made))
            << name(scheme) << ", " << n << " x " << k;
      }
    }
  }
}

TEST(FromParts, OfNothingIsLegal) {
  for (const bool offsets : {false, true}) {
    const QuantScheme scheme = {.per = QuantPer::group, .group = 2, .offsets = offsets};
    const QuantizedParts no_columns = {.values = {.dtype = Dtype::s8, .cols = 5},
                                       .layout = WeightLayout::out_in,
                                       .scales = {.rows = 3}};
    EXPECT_EQ(QuantizedWeight::from_parts(scheme, 0, 5, no_columns).groups(), 3);
    const QuantizedParts no_inputs = {.values = {.dtype = Dtype::s8, .rows = 5},
                                      .layout = WeightLayout::out_in,
                                      .scales = {.cols = 5}};
    EXPECT_EQ(QuantizedWeight::from_parts(scheme, 5, 0, no_inputs).groups(), 0);
  }
}

TEST(FromParts, RefusesValuesThatDoNotFit) {
  Given given;
  given.n = 4;
  EXPECT_EQ(given.refusal(),
            "quantized weight: values are 3 x 5 but n = 4 and k = 5 in out_in with 8 bits needs "
            "4 x 5");
  given.n = 3;
  given.scheme.bits = 4;
  EXPECT_EQ(given.refusal(),
            "quantized weight: values are 3 x 5 but n = 3 and k = 5 in out_in with 4 bits needs "
            "3 x 3");
  given.parts.layout = WeightLayout::in_out;
  EXPECT_EQ(given.refusal(),
            "quantized weight: values are 3 x 5 but n = 3 and k = 5 in in_out with 4 bits needs "
            "5 x 2");
  given.parts.layout = static_cast<WeightLayout>(3);
  EXPECT_EQ(given.refusal(), "quantized weight: the tensor of values has the unknown layout 3");
}

TEST(FromParts, RefusesNegativeSizes) {
  Given given;
  given.n = -3;
  EXPECT_EQ(given.refusal(), "quantized weight: n = -3 and k = 5 must not be negative");
}

TEST(FromParts, RefusesValuesOfAnotherDtype) {
  Given given;
  given.parts.values = view_of(given.scales, 3, 5);
  EXPECT_EQ(given.refusal(), "quantized weight: values are f32, not s8");
}

TEST(FromParts, RefusesScalesThatDoNotFit) {
  Given given;
  given.parts.scales.rows = 2;
  EXPECT_EQ(given.refusal(),
            "quantized weight: scales are 2 x 3 but 3 groups of 2 in k = 5 need 3 x 3");
  given.scheme.group = 9;
  EXPECT_EQ(given.refusal(),
            "quantized weight: scales are 2 x 3 but 1 group of 9 in k = 5 needs 1 x 3");
  given.scheme.group = 0;
  given.scheme.per = QuantPer::channel;
  EXPECT_EQ(given.refusal(),
            "quantized weight: scales are 2 x 3 but one per channel of n = 3 needs 1 x 3");
  given.scheme.per = QuantPer::tensor;
  EXPECT_EQ(given.refusal(), "quantized weight: scales are 2 x 3 but one per tensor needs 1 x 1");
}

TEST(FromParts, RefusesWholeNumbersAsScales) {
  Given given;
  given.parts.scales = view_of(given.offsets, 3, 3);
  EXPECT_EQ(given.refusal(), "quantized weight: scales are s8; they must be f32, bf16 or f16");
}

TEST(FromParts, RefusesScalesThatAreNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Given given;
  for (const auto& [bad, word] : {std::pair{kInfinity, "inf"}, std::pair{-kInfinity, "-inf"},
                                  std::pair{std::numeric_limits<float>::quiet_NaN(), "nan"}}) {
    given.scales[5] = bad;
    EXPECT_EQ(given.refusal(), std::string("quantized weight: the scale at [1, 2] is ") + word);
  }
}

TEST(FromParts, RefusesOffsetsThatDoNotFit) {
  Given given;
  given.parts.offsets.cols = 2;
  EXPECT_EQ(given.refusal(),
            "quantized weight: offsets are 3 x 2 but 3 groups of 2 in k = 5 need 3 x 3");
  given.parts.offsets = view_of(given.scales, 3, 3);
  EXPECT_EQ(given.refusal(), "quantized weight: offsets are f32, not s8");
  given.parts.offsets = {};
  EXPECT_EQ(given.refusal(), "quantized weight: s8:group=2:offsets has offsets but none are given");
}

TEST(FromParts, RefusesOffsetsThatTheSchemeDoesNotHave) {
  Given given;
  given.scheme.offsets = false;
  EXPECT_EQ(given.refusal(), "quantized weight: offsets are given but s8:group=2 has none");
}

TEST(FromParts, RefusesOffsetsOutsideTheRangeOfFourBits) {
  Given given;
  given.scheme.bits = 4;
  given.parts.values = view_of(given.values, 3, 3);
  EXPECT_NO_THROW(given.make());
  given.offsets[8] = 8;
  EXPECT_EQ(given.refusal(), "quantized weight: the offset at [2, 2] is 8; 4 bits have -8 to 7");
  given.offsets[8] = -9;
  EXPECT_EQ(given.refusal(), "quantized weight: the offset at [2, 2] is -9; 4 bits have -8 to 7");
}

TEST(FromParts, RefusesViewsThatCannotBeRead) {
  Given given;
  given.parts.values.row_stride = 4;
  EXPECT_EQ(given.refusal(),
            "quantized weight: the tensor of values has 5 columns but a row stride of 4");
  given.parts.values = {.dtype = Dtype::s8, .rows = 3, .cols = 5, .row_stride = 5};
  EXPECT_EQ(given.refusal(),
            "quantized weight: the tensor of values is 3 x 5 but its data is null");
  given.parts.values = view_of(given.values, 3, 5);
  given.parts.values.device = Device::cuda(0);
  EXPECT_EQ(given.refusal(),
            "quantized weight: the tensor of values is on cuda:0, which the CPU cannot read");
  given.parts.values.device = kCpu;
  given.parts.scales.data = reinterpret_cast<const std::byte*>(given.scales.data()) + 1;
  EXPECT_EQ(given.refusal().find("quantized weight: the tensor of scales is f32 but its data at "),
            0U);
  given.parts.scales = view_of(given.scales, 3, 3);
  given.parts.offsets.row_stride = 2;
  EXPECT_EQ(given.refusal(),
            "quantized weight: the tensor of offsets has 3 columns but a row stride of 2");
}

TEST(FromParts, RefusesSchemesThatAreNone) {
  Given given;
  given.scheme.bits = 16;
  EXPECT_EQ(given.refusal(), "quantized weight: the scheme has 16 bits; 8 or 4 are possible");
}

TEST(QuantizedWeight, RefusesPlacesOutside) {
  const QuantizedWeight weight = Given().make();
  for (const auto& [column, k] :
       {std::pair{3, 0}, std::pair{-1, 0}, std::pair{0, 5}, std::pair{0, -1}}) {
    const std::string expected = "quantized weight: column " + std::to_string(column) + ", k " +
                                 std::to_string(k) + " is outside n = 3, k = 5";
    EXPECT_EQ(sentence_of([&] { (void)weight.value(column, k); }), expected);
    EXPECT_EQ(sentence_of([&] { (void)weight.scale(column, k); }), expected);
    EXPECT_EQ(sentence_of([&] { (void)weight.offset(column, k); }), expected);
  }
}

TEST(QuantizedWeight, IsEmptyUntilItIsMade) {
  const QuantizedWeight weight;
  EXPECT_EQ(weight.n(), 0);
  EXPECT_EQ(weight.k(), 0);
  EXPECT_EQ(weight.groups(), 1);
  EXPECT_EQ(weight.values().bytes(), 0U);
  EXPECT_EQ(weight.scales().bytes(), 0U);
  EXPECT_EQ(weight.offsets().data, nullptr);
}

}  // namespace
}  // namespace plait
