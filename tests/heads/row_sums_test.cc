// Sums of exponentials have the same bits in any order and any blocks, and are near the exact ones.
#include "heads/row_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "problem.h"

namespace plait::heads {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

RowSums sums_of(const std::vector<float>& x) {
  RowSums sums;
  sums.add(loops(), x.data(), std::ssize(x), true);
  return sums;
}

bool same(const RowSums& a, const RowSums& b) {
  return std::equal(std::begin(a.parts), std::end(a.parts), std::begin(b.parts)) &&
         a.logits == b.logits && a.base == b.base && a.largest == b.largest &&
         a.log_sum_exp() == b.log_sum_exp();
}

double exact(const std::vector<float>& x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const float value : x) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

std::vector<float> logits_around(double middle, double spread, std::size_t count) {
  std::mt19937 random(3);
  std::normal_distribution<double> draw(middle, spread);
  std::vector<float> x(count);
  for (float& value : x) value = static_cast<float>(draw(random));
  return x;
}

TEST(RowSums, AreNearTheExactOnes) {
  for (const double middle : {-5000.0, -90.0, 0.0, 11.0, 88.7, 3000.0}) {
    for (const double spread : {0.001, 1.0, 12.0, 200.0}) {
      const std::vector<float> x = logits_around(middle, spread, 3001);
      // Each exponential is rounded to 24 bits; those left out are below 2^-48 of the largest.
      EXPECT_NEAR(sums_of(x).log_sum_exp(), exact(x),
                  0x1p-23 + 3001 * 0x1p-48 + 1e-12 * std::abs(middle))
          << middle << ' ' << spread;
      double mean = 0;
      for (const float value : x) mean += value;
      EXPECT_NEAR(static_cast<double>(sums_of(x).logits) * kInMean, mean, 3001 * kInMean);
    }
  }
}

TEST(RowSums, HaveTheSameBitsInAnyOrder) {
  std::mt19937 random(5);
  for (const double spread : {1.0, 15.0, 400.0}) {
    std::vector<float> x = logits_around(0, spread, 2000);
    x[17] = -kInfinity;
    const RowSums whole = sums_of(x);
    for (int round = 0; round < 20; ++round) {
      std::shuffle(x.begin(), x.end(), random);
      RowSums parts[3];
      for (std::size_t begin = 0; begin < x.size();) {
        const std::size_t count = std::min<std::size_t>(random() % 700, x.size() - begin);
        parts[random() % 3].add(loops(), x.data() + begin, static_cast<std::int64_t>(count), true);
        begin += count;
      }
      parts[0].add(parts[2]);
      parts[0].add(parts[1]);
      EXPECT_TRUE(same(parts[0], whole)) << spread;
    }
    std::sort(x.begin(), x.end());  // the base grows again and again
    const RowSums sorted = sums_of(x);
    EXPECT_TRUE(same(sorted, whole)) << spread;
  }
}

TEST(RowSums, KnowWhatNoRankHasSent) {
  for (const float logit : {-kInfinity, -3e38F, 0.0F, 5.0F, 3e38F, kInfinity, kNotANumber})
    EXPECT_TRUE(sums_of({logit}).is_possible()) << logit;
  EXPECT_TRUE(RowSums().is_possible());
  RowSums sums = sums_of({5});
  for (const std::int64_t base :
       {RowSums().base, RowSums().base + 1, std::numeric_limits<std::int64_t>::max()}) {
    sums.base = base;
    EXPECT_FALSE(sums.is_possible()) << base;
  }
}

TEST(RowSums, SayWhatIsNoNumber) {
  EXPECT_EQ(sums_of({1, kInfinity, 2}).log_sum_exp(), kInfinity);
  EXPECT_EQ(sums_of({-kInfinity, -kInfinity}).log_sum_exp(), -kInfinity);
  EXPECT_EQ(RowSums().log_sum_exp(), -kInfinity);
  EXPECT_NEAR(sums_of({-kInfinity, 2}).log_sum_exp(), 2, 0x1p-24);
  EXPECT_EQ(sums_of({1e30F, 3}).log_sum_exp(), 1e30F);
  EXPECT_EQ(sums_of({-1e30F, -2e30F}).log_sum_exp(), -1e30F);
  EXPECT_TRUE(std::isnan(sums_of({1, kNotANumber}).log_sum_exp()));
  RowSums sums = sums_of({5});
  sums.add(sums_of({kNotANumber}));
  EXPECT_TRUE(std::isnan(sums.log_sum_exp()));
  sums = sums_of({-kInfinity});
  sums.add(sums_of({5}));
  EXPECT_NEAR(sums.log_sum_exp(), 5, 0x1p-24);
}

}  // namespace
}  // namespace plait::heads
