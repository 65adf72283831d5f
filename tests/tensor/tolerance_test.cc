#include "tensor/tolerance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tensor/reduce.h"

namespace plait::tensor {
namespace {

TEST(Tolerance, GammaGrowsWithTheTermsAndEnds) {
  EXPECT_EQ(gamma(0, 0x1p-24), 0);
  EXPECT_GT(gamma(1, 0x1p-24), 0x1p-24);
  EXPECT_NEAR(gamma(1000, 0x1p-24) / (1000 * 0x1p-24), 1, 1e-4);
  EXPECT_TRUE(std::isinf(gamma(1 << 24, 0x1p-24)));
}

TEST(Tolerance, SmallestRoundoffIsHalfTheSmallestNumber) {
  EXPECT_EQ(2 * smallest_roundoff(Dtype::f32), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(2 * smallest_roundoff(Dtype::bf16), static_cast<float>(Bf16::from_bits(1)));
  EXPECT_EQ(2 * smallest_roundoff(Dtype::f16), static_cast<float>(F16::from_bits(1)));
  EXPECT_EQ(2 * smallest_roundoff(Dtype::s8), 1);
}

TEST(Tolerance, CountsEveryRoundingOnce) {
  const double u = 0x1p-24;
  // Only f32: terms + world roundings, one to `wire`, one to `out`, one of the reference.
  EXPECT_NEAR(tolerance({.terms = 100, .world = 4}, 1) / u, 107, 0.01);
  EXPECT_NEAR(tolerance({.terms = 1, .out = Dtype::bf16}, 1), 0x1p-8, 5 * u);
  EXPECT_NEAR(tolerance({.terms = 1, .world = 8, .wire = Dtype::bf16, .out = Dtype::bf16}, 1),
              2 * 0x1p-8 + 0x1p-16, 16 * u);
}

TEST(Tolerance, CountsTheLargestSumsOfAnS8Wire) {
  const Roundings exact = {.terms = 1, .world = 2, .wire = Dtype::s8};
  EXPECT_LT(tolerance(exact, 1), 8 * 0x1p-24);
  EXPECT_GE(tolerance(exact, 0), 2 * 0x1p-126);
  Roundings way = exact;
  way.group = 252;
  EXPECT_NEAR(tolerance(way, 1), 1, 1e-5);
}

TEST(Tolerance, HasAFloorNearZero) {
  EXPECT_GE(tolerance({.terms = 1, .out = Dtype::f16}, 0), 0x1p-25);
  EXPECT_LT(tolerance({.terms = 1, .out = Dtype::f16}, 0), 0x1.1p-25);
  EXPECT_GE(tolerance({.terms = 1, .world = 3, .wire = Dtype::f16}, 0), 3 * 0x1p-25);
  EXPECT_GE(tolerance({.terms = 1, .out = Dtype::s8}, 0), 0.5);
}

// Products of `world` ranks as the numerics contract computes them, and exactly.
struct Element {
  double got;
  double exact;
  double magnitude;
};

Element computed(const Roundings& way, float scale, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> number(-scale, scale);
  Element element = {};
  std::vector<std::vector<std::byte>> wires;
  std::vector<const void*> sources;
  for (int rank = 0; rank < way.world; ++rank) {
    float partial = 0;
    for (std::int64_t k = 0; k < way.terms; ++k) {
      const float a = number(random);
      const float b = number(random);
      partial += a * b;
      element.exact += static_cast<double>(a) * b;
      element.magnitude += std::abs(static_cast<double>(a) * b);
    }
    wires.emplace_back(size_of(way.wire));
    convert(&partial, Dtype::f32, wires.back().data(), way.wire, 1);
  }
  sources.reserve(wires.size());
  for (const auto& wire : wires) sources.push_back(wire.data());
  std::vector<std::byte> out(size_of(way.out));
  sum_as_tree(out.data(), way.out, sources.data(), way.world, way.wire, 1);
  float got = 0;
  convert(out.data(), way.out, &got, Dtype::f32, 1);
  element.got = got;
  element.exact = static_cast<float>(element.exact);
  return element;
}

TEST(Tolerance, HoldsForSumsThatFollowTheContract) {
  for (const Dtype wire : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    for (const Dtype out : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
      // The small scale makes results denormal in f16.
      for (const float scale : {1.0F, 0x1p-10F}) {
        double worst = 0;
        for (unsigned seed = 0; seed < 300; ++seed) {
          const Roundings way = {.terms = 2, .world = 3, .wire = wire, .out = out};
          const Element element = computed(way, scale, seed);
          const double off = std::abs(element.got - element.exact);
          worst = std::fmax(worst, off / tolerance(way, element.magnitude));
        }
        EXPECT_LE(worst, 1) << name(wire) << " to " << name(out) << ", scale " << scale;
        EXPECT_GT(worst, 0.05) << "a bound this loose finds nothing: " << name(wire) << " to "
                               << name(out) << ", scale " << scale;
      }
    }
  }
}

}  // namespace
}  // namespace plait::tensor
