#include "plait/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tensor/float_modes.h"
#include "tensor/print.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The definition of a 16-bit format, independent of the code under test.
template <class T>
struct Format;

template <>
struct Format<Bf16> {
  static constexpr int kDigits = 7, kBias = 127;
};

template <>
struct Format<F16> {
  static constexpr int kDigits = 10, kBias = 15;
};

template <class T>
double meaning(int bits) {
  const int digits = bits & ((1 << Format<T>::kDigits) - 1);
  const int exponent = (bits & 0x7fff) >> Format<T>::kDigits;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int unit = 1 - Format<T>::kBias - Format<T>::kDigits;
  if (exponent == 0) return sign * std::ldexp(digits, unit);
  return sign * std::ldexp(digits + (1 << Format<T>::kDigits), unit + exponent - 1);
}

template <class T>
constexpr int kInfinityBits = 0x7fff & ~((1 << Format<T>::kDigits) - 1);

template <class T>
class HalfType : public testing::Test {
 protected:
  static T of(int bits) { return T::from_bits(static_cast<std::uint16_t>(bits)); }
};

using HalfTypes = testing::Types<Bf16, F16>;
TYPED_TEST_SUITE(HalfType, HalfTypes);

TYPED_TEST(HalfType, EveryNumberMeansWhatItsBitsSayAndComesBack) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7fff) >= kInfinityBits<TypeParam>) continue;
    const auto value = static_cast<float>(this->of(bits));
    ASSERT_EQ(static_cast<double>(value), meaning<TypeParam>(bits)) << bits;
    ASSERT_EQ(TypeParam(value).bits, bits);
  }
}

TYPED_TEST(HalfType, InfinitiesStayAndNansStayNansWithTheirPayload) {
  constexpr int kQuiet = 1 << (Format<TypeParam>::kDigits - 1);
  EXPECT_EQ(static_cast<float>(this->of(kInfinityBits<TypeParam>)), kInfinity);
  EXPECT_EQ(static_cast<float>(this->of(kInfinityBits<TypeParam> | 0x8000)), -kInfinity);
  EXPECT_EQ(TypeParam(kInfinity).bits, kInfinityBits<TypeParam>);
  EXPECT_EQ(TypeParam(-kInfinity).bits, kInfinityBits<TypeParam> | 0x8000);
  for (int bits = kInfinityBits<TypeParam> + 1; bits < 0x8000; ++bits) {
    for (const int sign : {0, 0x8000}) {
      ASSERT_TRUE(std::isnan(static_cast<float>(this->of(bits | sign))));
      ASSERT_EQ(TypeParam(static_cast<float>(this->of(bits | sign))).bits, bits | sign | kQuiet);
    }
  }
  // A payload in the low digits only must not become an infinity.
  EXPECT_EQ(TypeParam(std::bit_cast<float>(0x7f800001U)).bits, kInfinityBits<TypeParam> | kQuiet);
  EXPECT_EQ(TypeParam(std::bit_cast<float>(0xffffffffU)).bits, 0xffff);
}

TYPED_TEST(HalfType, EveryMidpointGoesToEvenAndItsNeighboursToTheNearest) {
  for (int bits = 0; bits + 1 < kInfinityBits<TypeParam>; ++bits) {
    const double low = meaning<TypeParam>(bits);
    const double high = meaning<TypeParam>(bits + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
    const int even = (bits & 1) == 0 ? bits : bits + 1;
    for (const int sign : {0, 0x8000}) {
      const float side = sign == 0 ? 1.0F : -1.0F;
      ASSERT_EQ(TypeParam(side * middle).bits, even | sign);
      ASSERT_EQ(TypeParam(side * std::nextafter(middle, 0.0F)).bits, bits | sign);
      ASSERT_EQ(TypeParam(side * std::nextafter(middle, kInfinity)).bits, (bits + 1) | sign);
    }
  }
}

TYPED_TEST(HalfType, ConvertsAtCompileTime) {
  static_assert(static_cast<float>(TypeParam(1.5F)) == 1.5F);
  static_assert(TypeParam(-0.0F).bits == 0x8000);
  static_assert(std::is_trivially_copyable_v<TypeParam>);
}

TEST(F16, OverflowsAtTheBorder) {
  EXPECT_EQ(F16(65504.0F).bits, 0x7bff);
  EXPECT_EQ(F16(std::nextafter(65520.0F, 0.0F)).bits, 0x7bff);
  EXPECT_EQ(F16(65520.0F).bits, 0x7c00);
  EXPECT_EQ(F16(-65520.0F).bits, 0xfc00);
  EXPECT_EQ(F16(std::numeric_limits<float>::max()).bits, 0x7c00);
}

TEST(F16, UnderflowsAtTheBorder) {
  EXPECT_EQ(F16(0x1p-25F).bits, 0);
  EXPECT_EQ(F16(std::nextafter(0x1p-25F, 1.0F)).bits, 1);
  EXPECT_EQ(F16(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
}

TEST(Bf16, OverflowsAtTheBorder) {
  const auto border = std::bit_cast<float>(0x7f7f8000U);
  EXPECT_EQ(Bf16(std::nextafter(border, 0.0F)).bits, 0x7f7f);
  EXPECT_EQ(Bf16(border).bits, 0x7f80);
}

TEST(Dtype, NamesAreParsedBackAndNothingElseIs) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s8}) {
    EXPECT_EQ(parse_dtype(name(dtype)), dtype);
  }
  EXPECT_EQ(name(Dtype::bf16), "bf16");
  for (const char* bad : {"", "F32", "f32 ", "float", "unknown"}) EXPECT_FALSE(parse_dtype(bad));
}

TEST(Dtype, OfAViewThatHasNoneIsNotConverted) {
  float value = 1;
  EXPECT_EQ(sentence_of([&] { convert(&value, kNoDtype, &value, Dtype::f32, 1); }),
            "convert: from unknown to f32: there are f32, bf16, f16 and s8");
  EXPECT_EQ(sentence_of([&] { convert(&value, Dtype::f32, &value, kNoDtype, 1); }),
            "convert: from f32 to unknown: there are f32, bf16, f16 and s8");
}

TEST(Dtype, SizesAndRoundoffsAreThoseOfTheFormats) {
  EXPECT_EQ(size_of(Dtype::f32), sizeof(float));
  EXPECT_EQ(size_of(Dtype::bf16), sizeof(Bf16));
  EXPECT_EQ(size_of(Dtype::f16), sizeof(F16));
  EXPECT_EQ(size_of(Dtype::s8), sizeof(std::int8_t));
  // Just above 1 the distance to the next number is 2u.
  EXPECT_EQ(1 + 2 * unit_roundoff(Dtype::f32), std::nextafter(1.0F, 2.0F));
  EXPECT_EQ(1 + 2 * unit_roundoff(Dtype::bf16), meaning<Bf16>(0x3f81));
  EXPECT_EQ(1 + 2 * unit_roundoff(Dtype::f16), meaning<F16>(0x3c01));
}

TEST(Convert, RoundsToS8HalfToEvenAndSaturates) {
  const std::vector<float> from = {0.5F,   1.5F,   2.5F,   -0.5F,  -1.5F,     0.49999997F,
                                   126.5F, 127.5F, 1e30F,  -128,   -128.5F,   -129.5F,
                                   -1e30F, NAN,    -2.75F, 1e-40F, kInfinity, -kInfinity};
  const std::vector<std::int8_t> want = {0,    2,    2,    0,    -2, 0,  126, 127, 127,
                                         -128, -128, -128, -128, 0,  -3, 0,   127, -128};
  std::vector<std::int8_t> got(from.size());
  convert(from.data(), Dtype::f32, got.data(), Dtype::s8, from.size());
  EXPECT_EQ(got, want);
}

TEST(Convert, NarrowsInPlace) {
  std::vector<float> values(1001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.37F * static_cast<float>(i);
  const std::vector<float> before = values;
  convert(values.data(), Dtype::f32, values.data(), Dtype::f16, values.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    F16 got;
    std::memcpy(&got, reinterpret_cast<const std::byte*>(values.data()) + 2 * i, 2);
    ASSERT_EQ(got.bits, F16(before[i]).bits) << i;
  }
}

TEST(Convert, OfNothingTouchesNothing) {
  EXPECT_NO_THROW(convert(nullptr, Dtype::f32, nullptr, Dtype::bf16, 0));
  EXPECT_NO_THROW(convert(nullptr, Dtype::f32, nullptr, Dtype::f32, 0));
}

// Conversions in any mode of the thread. kernels_test.cc tests the bulk conversions of each set in
// the same way.
std::vector<std::uint32_t> scalar_conversions() {
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < 70000; ++i) {
    // volatile, so that it is not computed at compile time
    const volatile auto from = std::bit_cast<float>(i * 61379U);
    const Bf16 bf16(from);
    const F16 f16(from);
    all.insert(all.end(), {bf16.bits, f16.bits, std::bit_cast<std::uint32_t>(float(bf16)),
                           std::bit_cast<std::uint32_t>(float(f16)),
                           std::bit_cast<std::uint32_t>(float(F16::from_bits(bf16.bits)))});
  }
  return all;
}

TEST(Dtype, ConversionsDependNeitherOnRoundingModeNorOnFlushingOfDenormals) {
  const auto expected = scalar_conversions();
  for (const auto& mode : float_modes()) {
    mode.enter();
    const auto got = scalar_conversions();
    mode.leave();
    EXPECT_EQ(got, expected) << mode.name;
  }
}

}  // namespace
}  // namespace plait
