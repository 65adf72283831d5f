#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "plait/quantized.h"
#include "quant/chance.h"
#include "quant/format.h"
#include "quant/weights.h"
#include "tensor/fill.h"
#include "tensor/float_modes.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr auto kLayouts = {WeightLayout::out_in, WeightLayout::in_out};

// Between -0.5 and 1.5: not centred, so that offsets matter.
float uneven(std::int64_t column, std::int64_t k) {
  const auto mixed = static_cast<std::uint64_t>(column * 7919 + k) * 0x9e3779b97f4a7c15U;
  return static_cast<float>(mixed >> 40) * 0x1p-23F - 0.5F;
}

// The largest magnitude among the weights that share the scale of this one.
double largest_beside(const WeightView& weight, const QuantScheme& scheme, std::int64_t column,
                      std::int64_t k) {
  const bool whole = scheme.per == QuantPer::tensor;
  const bool grouped = scheme.per == QuantPer::group;
  const std::int64_t from = grouped ? k / scheme.group * scheme.group : 0;
  const std::int64_t to = grouped ? std::min(from + scheme.group, weight.k()) : weight.k();
  double largest = 0;
  for (std::int64_t j = whole ? 0 : column; j < (whole ? weight.n() : column + 1); ++j) {
    for (std::int64_t i = from; i < to; ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(weight_at(weight, j, i))));
    }
  }
  return largest;
}

void expect_near(const WeightView& weight, const QuantScheme& scheme) {
  const QuantizedWeight quantized = quantize(weight, scheme);
  ASSERT_EQ(quantized.n(), weight.n());
  ASSERT_EQ(quantized.k(), weight.k());
  for (std::int64_t j = 0; j < weight.n(); ++j) {
    for (std::int64_t i = 0; i < weight.k(); ++i) {
      const float scale = quantized.scale(j, i);
      const double back =
          static_cast<float>(quantized.value(j, i) + quantized.offset(j, i)) * scale;
      const double largest = largest_beside(weight, scheme, j, i);
      ASSERT_LE(std::abs(back - weight_at(weight, j, i)),
                0.5 * scale + 4 * unit_roundoff(Dtype::f32) * largest)
          << name(scheme) << ", column " << j << ", k " << i;
      ASSERT_LE(scale, largest / quant::format_of(scheme.bits).highest * (1 + 0x1p-23))
          << name(scheme);
    }
  }
}

TEST(Quantize, IsWithinHalfAScale) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    const OwnedWeight weight = make_weight(5, 70, uneven, {.dtype = dtype, .gap = 1});
    for (const QuantScheme& scheme : all_schemes(32)) {
      ASSERT_NO_FATAL_FAILURE(expect_near(weight.view(), scheme));
    }
  }
}

TEST(Quantize, TakesAnyShapeAndAnyGroup) {
  Chance chance(3);
  for (int round = 0; round < rounds(60); ++round) {
    const std::int64_t n = chance.below(40);
    const std::int64_t k = chance.one_in(4) ? 250 + chance.below(20) : chance.below(20);
    const std::int64_t group = 1 + chance.below(300);
    const Lie lie = {.layout = chance.one_in(2) ? WeightLayout::out_in : WeightLayout::in_out,
                     .gap = chance.below(3)};
    const OwnedWeight weight = make_weight(n, k, uneven, lie);
    const auto schemes = all_schemes(group);
    ASSERT_NO_FATAL_FAILURE(expect_near(weight.view(), chance.of(schemes)));
  }
}

TEST(Quantize, GivesTheSameBitsInBothLayouts) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    const Lie in_out = {.dtype = dtype, .layout = WeightLayout::in_out, .gap = 5};
    const OwnedWeight one = make_weight(67, 531, uneven, {.dtype = dtype});
    const OwnedWeight other = make_weight(67, 531, uneven, in_out);
    for (const QuantScheme& scheme : all_schemes(100)) {
      EXPECT_TRUE(same_weight(quantize(one.view(), scheme), quantize(other.view(), scheme)))
          << name(scheme);
    }
  }
}

TEST(Quantize, IsExactForWeightsOnTheGrid) {
  // Every part has both ends of its range, so that the same scale is found; 3/64 has few digits.
  for (const QuantScheme& scheme : all_schemes(8)) {
    const int most = quant::format_of(scheme.bits).highest;
    const int least = scheme.offsets ? -most - 1 : -most;
    const auto on_grid = [&](std::int64_t column, std::int64_t k) {
      const std::int64_t range = most - least + 1;
      const std::int64_t step = k % 4 == 0   ? 0
                                : k % 4 == 1 ? range - 1
                                             : (column * 31 + k * 5) % range;
      return static_cast<float>(least + step) * 0.046875F;
    };
    const OwnedWeight weight = make_weight(9, 30, on_grid);
    const QuantizedWeight quantized = quantize(weight.view(), scheme);
    const OwnedWeight back = empty_weight(9, 30);
    quantized.dequantize(back.out, WeightLayout::out_in);
    EXPECT_EQ(bytes_of(back.out), bytes_of(weight.out)) << name(scheme);
    EXPECT_EQ(quantized.scale(0, 0), 0.046875F) << name(scheme);
  }
}

TEST(Quantize, GivesEveryPartItsOwnScale) {
  const auto powers = [](std::int64_t column, std::int64_t k) {
    return 127.0F * static_cast<float>(1 << (column * 2 + k / 3));
  };
  const OwnedWeight weight = make_weight(2, 5, powers);  // groups of k: 0..2, 3..4
  const QuantizedWeight grouped = quantize(weight.view(), {.per = QuantPer::group, .group = 3});
  EXPECT_EQ(grouped.groups(), 2);
  EXPECT_EQ(grouped.scale(0, 2), 1);
  EXPECT_EQ(grouped.scale(0, 3), 2);
  EXPECT_EQ(grouped.scale(1, 0), 4);
  EXPECT_EQ(grouped.scale(1, 4), 8);
  EXPECT_EQ(quantize(weight.view(), {.per = QuantPer::channel}).scale(0, 0), 2);
  EXPECT_EQ(quantize(weight.view(), {.per = QuantPer::tensor}).scale(0, 0), 8);
  EXPECT_EQ(quantize(weight.view(), {.per = QuantPer::group, .group = 6}).groups(), 1);
}

TEST(Quantize, KeepsZeroWithOffsetsToo) {
  const auto mostly_large = [](std::int64_t, std::int64_t k) { return k == 3 ? 0.0F : 5.0F; };
  const OwnedWeight weight = make_weight(1, 9, mostly_large);
  const QuantizedWeight quantized = quantize(weight.view(), {.offsets = true});
  EXPECT_EQ(quantized.value(0, 3) + quantized.offset(0, 3), 0);
  EXPECT_EQ(quantized.value(0, 0) + quantized.offset(0, 0), 254);
}

TEST(Quantize, GivesZerosTheScaleZero) {
  const auto zero = [](std::int64_t, std::int64_t) { return 0.0F; };
  const OwnedWeight weight = make_weight(3, 7, zero);
  for (const QuantScheme& scheme : all_schemes(4)) {
    const QuantizedWeight quantized = quantize(weight.view(), scheme);
    EXPECT_EQ(quantized.scale(2, 6), 0) << name(scheme);
    EXPECT_EQ(quantized.value(2, 6) + quantized.offset(2, 6), 0) << name(scheme);
  }
}

TEST(Quantize, OfNothingIsLegal) {
  for (const auto& [n, k] : {std::pair{0, 0}, std::pair{0, 5}, std::pair{5, 0}}) {
    for (const WeightLayout layout : kLayouts) {
      const OwnedWeight weight = empty_weight(n, k, {.layout = layout});
      for (const QuantScheme& scheme : all_schemes(3)) {
        const QuantizedWeight quantized = quantize(weight.view(), scheme);
        EXPECT_EQ(quantized.n(), n);
        EXPECT_EQ(quantized.k(), k);
        EXPECT_EQ(quantized.values().bytes(), 0U);
        EXPECT_EQ(quantized.groups(), scheme.per != QuantPer::group ? 1 : (k + 2) / 3);
      }
    }
  }
}

TEST(Quantize, OfAColumnWithoutInputsHasTheScaleZero) {
  const OwnedWeight weight = empty_weight(2, 0);
  const QuantizedWeight quantized = quantize(weight.view(), {});
  ASSERT_EQ(quantized.scales().cols, 2);
  EXPECT_EQ(static_cast<const float*>(quantized.scales().data)[1], 0);
}

TEST(Quantize, DoesNotDependOnTheModeOfTheThread) {
  const auto tiny = [](std::int64_t column, std::int64_t k) {
    return uneven(column, k) * (column == 0 ? 1e-41F : 3.7F);
  };
  const OwnedWeight weight = make_weight(3, 50, tiny);
  for (const QuantScheme& scheme : all_schemes(16)) {
    const QuantizedWeight usual = quantize(weight.view(), scheme);
    const OwnedWeight usual_back = empty_weight(3, 50);
    usual.dequantize(usual_back.out, WeightLayout::out_in);
    EXPECT_GT(usual.scale(0, 0), 0);
    for (const FloatMode& mode : float_modes()) {
      const OwnedWeight back = empty_weight(3, 50);
      mode.enter();
      const QuantizedWeight quantized = quantize(weight.view(), scheme);
      quantized.dequantize(back.out, WeightLayout::out_in);
      mode.leave();
      EXPECT_TRUE(same_weight(quantized, usual)) << name(scheme) << ", " << mode.name;
      EXPECT_EQ(bytes_of(back.out), bytes_of(usual_back.out)) << name(scheme) << ", " << mode.name;
    }
  }
}

// Large enough to be shared by three threads, of which only the caller's is in that mode.
TEST(Quantize, DoesNotDependOnTheNumberOfThreads) {
  constexpr std::int64_t kN = 211;
  constexpr std::int64_t kK = 701;
  const auto half_tiny = [](std::int64_t column, std::int64_t k) {
    return uneven(column, k) * (column % 2 == 0 ? 1e-41F : 3.7F);
  };
  const FloatMode mode = float_modes().back();
  for (const WeightLayout layout : kLayouts) {
    const OwnedWeight weight = make_weight(kN, kK, half_tiny, {.layout = layout, .gap = 1});
    const OwnedWeight one_back = empty_weight(kN, kK);
    for (const QuantScheme& scheme : all_schemes(100)) {
      const QuantizedWeight one = quantize(weight.view(), scheme, 1);
      one.dequantize(one_back.out, WeightLayout::out_in, 1);
      for (const int threads : {0, 2, 3}) {
        const OwnedWeight back = empty_weight(kN, kK);
        mode.enter();
        const QuantizedWeight many = quantize(weight.view(), scheme, threads);
        many.dequantize(back.out, WeightLayout::out_in, threads);
        mode.leave();
        EXPECT_TRUE(same_weight(many, one)) << name(scheme) << ", threads: " << threads;
        EXPECT_EQ(bytes_of(back.out), bytes_of(one_back.out)) << name(scheme) << ", " << threads;
        const QuantizedWeight taken =
            QuantizedWeight::from_parts(scheme, kN, kK, parts_of(one), threads);
        EXPECT_TRUE(same_weight(taken, one)) << name(scheme) << ", threads: " << threads;
      }
    }
  }
}

// Exceptions of the other threads reach the caller.
TEST(Quantize, RefusesWhatAnyThreadFinds) {
  const auto bad_at_the_end = [](std::int64_t column, std::int64_t k) {
    return column == 210 && k == 700 ? kNan : 1.0F;
  };
  const OwnedWeight weight = make_weight(211, 701, bad_at_the_end);
  for (const int threads : {1, 2, 3}) {
    EXPECT_EQ(sentence_of([&] { quantize(weight.view(), {}, threads); }),
              "quantize: the weight at [210, 700] is nan; only finite weights can be quantised");
  }
}

TEST(Quantize, NamesTheWeightThatIsNotFinite) {
  const auto refusal = [](float bad, WeightLayout layout, Dtype dtype) {
    const auto weight_of = [bad](std::int64_t column, std::int64_t k) {
      return column == 40 && k == 300 ? bad : 1.0F;
    };
    const OwnedWeight weight = make_weight(41, 301, weight_of, {.dtype = dtype, .layout = layout});
    return sentence_of([&] { quantize(weight.view(), {.per = QuantPer::group, .group = 7}); });
  };
  EXPECT_EQ(refusal(kNan, WeightLayout::out_in, Dtype::f32),
            "quantize: the weight at [40, 300] is nan; only finite weights can be quantised");
  EXPECT_EQ(refusal(kInfinity, WeightLayout::in_out, Dtype::bf16),
            "quantize: the weight at [300, 40] is inf; only finite weights can be quantised");
  EXPECT_EQ(refusal(-kInfinity, WeightLayout::out_in, Dtype::f16),
            "quantize: the weight at [40, 300] is -inf; only finite weights can be quantised");
}

TEST(Quantize, RefusesWhatIsNoWeight) {
  const OwnedWeight weight = make_weight(3, 4, uneven);
  WeightView bad = weight.view();
  bad.view.data = nullptr;
  EXPECT_EQ(sentence_of([&] { quantize(bad, {}); }),
            "quantize: the weight is 3 x 4 but its data is null");
  bad = weight.view();
  bad.view.row_stride = 3;
  EXPECT_EQ(sentence_of([&] { quantize(bad, {}); }),
            "quantize: the weight has 4 columns but a row stride of 3");
  bad = weight.view();
  bad.view.device = Device::cuda(1);
  EXPECT_EQ(sentence_of([&] { quantize(bad, {}); }),
            "quantize: the weight is on cuda:1, which the CPU cannot read");
  bad = weight.view();
  bad.view.dtype = Dtype::s8;
  EXPECT_EQ(sentence_of([&] { quantize(bad, {}); }),
            "quantize: the weight is s8; it must be f32, bf16 or f16");
  bad = weight.view();
  bad.layout = static_cast<WeightLayout>(9);
  EXPECT_EQ(sentence_of([&] { quantize(bad, {}); }),
            "quantize: the weight has the unknown layout 9");
  EXPECT_EQ(sentence_of([&] { quantize(weight.view(), {.bits = 3}); }),
            "quantize: the scheme has 3 bits; 8 or 4 are possible");
  EXPECT_EQ(sentence_of([&] { quantize(weight.view(), {}, -1); }),
            "quantize: threads=-1 is not between 0 and 1024");
}

}  // namespace
}  // namespace plait
