// Promises of every TileKernel (src/gemm/kernel.h), for each kernel that this processor can run. A
// kernel joins by its line in kernels.h.
#include "gemm/kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "base/sanitized.h"
#include "gemm/kernel_fixture.h"
#include "tensor/tolerance.h"

namespace plait::gemm {
namespace {

class Kernel : public KernelTest {};

TEST_P(Kernel, IsAsNearAsItsRoundingsAllow) {
  const Sums got = product({0, max_rows()});
  for (std::int64_t row = 0; row < max_rows(); ++row) {
    for (std::int64_t col = 0; col < kPanelColumns; ++col) {
      double want = 0;
      double magnitude = 0;
      for (std::int64_t k = 0; k < kDepth; ++k) {
        const double term = double{x(row, k)} * double{w(k, col)};
        want += term;
        magnitude += std::abs(term);
      }
      const double allowed = tensor::tolerance({.terms = kDepth}, magnitude);
      ASSERT_NEAR(got[static_cast<std::size_t>(row * kPanelColumns + col)], want, allowed)
          << "row " << row << ", column " << col;
    }
  }
}

// All f32 kernels give the same bits on a processor that has fused multiply-adds, and so do those
// of bf16 that multiply pairs, because each adds in this order.
TEST_P(Kernel, AddsOneProductAfterAnother) {
  if (GetParam().add == nullptr) GTEST_SKIP() << "has an order of its own";
  const bool pairs = GetParam().pairs;
  for (std::int64_t k = 0; k < kDepth; k += 7) x(0, k) = std::ldexp(x(0, k), -135);  // denormals
  const Sums got = product({0, max_rows()});
  for (std::int64_t k = 0; pairs && k < kDepth; k += 7) x(0, k) = 0;  // pairs count them as 0
  for (std::int64_t row = 0; row < max_rows(); ++row) {
    for (std::int64_t col = 0; col < kPanelColumns; ++col) {
      float want = 0;
      for (std::int64_t i = 0; i < kDepth; ++i) {
        const std::int64_t k = pairs ? i ^ 1 : i;
        want = GetParam().add(want, x(row, k), w(k, col));
      }
      ASSERT_EQ(got[static_cast<std::size_t>(row * kPanelColumns + col)], want)
          << "row " << row << ", column " << col;
    }
  }
}

// Also where a sum becomes one, before the next product is added.
TEST_P(Kernel, CountsDenormalSumsOfPairsAsZero) {
  if (!GetParam().pairs) GTEST_SKIP() << "has an order of its own";
  for (std::int64_t k = 0; k < kDepth; ++k) {
    x(0, k) = std::ldexp(x(0, k), -68);
    for (std::int64_t col = 0; col < kPanelColumns; ++col) w(k, col) = std::ldexp(w(k, col), -64);
  }
  const Sums got = product({0, max_rows()});
  int flushed = 0;
  int left = 0;
  for (std::int64_t col = 0; col < kPanelColumns; ++col) {
    float want = 0;
    for (std::int64_t i = 0; i < kDepth; ++i) {
      want = std::fma(x(0, i ^ 1), w(i ^ 1, col), want);
      if (std::fpclassify(want) != FP_SUBNORMAL) continue;
      want = 0;
      ++flushed;
    }
    ASSERT_EQ(got[static_cast<std::size_t>(col)], want) << "column " << col;
    if (want != 0) ++left;
  }
  EXPECT_GT(flushed, kPanelColumns) << "the sums are too large";
  EXPECT_GT(left, 0) << "the sums are too small";
}

// The exact a + b without the bits that f32 has no room for. If any is lost, the last one kept
// becomes 1. Denormals are 0.
float add_to_odd(double a, double b) {
  const double sum = a + b;
  const double rest = sum - a;
  const double lost = (a - (sum - rest)) + (b - rest);  // exactly what `sum` lacks
  auto got = static_cast<float>(sum);
  const auto toward_zero = [&] { got = std::nextafter(got, 0.0F); };
  if (std::abs(got) > std::abs(sum)) toward_zero();
  const bool exact = got == sum && lost == 0;
  if (got == sum && lost * sum < 0) toward_zero();
  if (std::fpclassify(got) == FP_SUBNORMAL) return std::copysign(0.0F, got);
  return exact ? got : std::bit_cast<float>(std::bit_cast<std::uint32_t>(got) | 1U);
}

// Other kernels have other bits: it is this one that is tested.
TEST_P(Kernel, OfMatricesAddsTwoProductsAtOnceRoundedToOdd) {
  if (!GetParam().matrices) GTEST_SKIP() << "has an order of its own";
  for (std::int64_t k = 0; k < kDepth; k += 7) x(0, k) = std::ldexp(x(0, k), -135);  // denormals
  for (std::int64_t k = 0; k < kDepth; ++k)
    x(1, k) = static_cast<float>(Bf16(std::ldexp(x(1, k), -122)));  // products and sums too
  const Sums got = product({0, max_rows()});
  const auto flushed = [](double value) { return std::abs(value) < 0x1p-126 ? 0.0 : value; };
  int unlike_chain = 0;
  for (std::int64_t row = 0; row < max_rows(); ++row) {
    for (std::int64_t col = 0; col < kPanelColumns; ++col) {
      float want = 0;
      float chain = 0;
      for (std::int64_t k = 0; k < kDepth; ++k) {
        chain = fused(chain, x(row, k), w(k, col));
        if (k % 2 == 0) continue;
        const auto term = [&](std::int64_t i) { return flushed(flushed(x(row, i)) * w(i, col)); };
        want = add_to_odd(want, add_to_odd(term(k - 1), term(k)));
      }
      ASSERT_EQ(got[static_cast<std::size_t>(row * kPanelColumns + col)], want)
          << "row " << row << ", column " << col;
      unlike_chain += want != chain ? 1 : 0;
    }
  }
  EXPECT_GT(unlike_chain, max_rows() * kPanelColumns / 2);
}

constexpr std::int64_t kRowsApart = kIsSlow ? 5 : 1;  // of the numbers of rows to try

TEST_P(Kernel, GivesARowTheSameBitsInAnyCompany) {
  const Sums alone = one_by_one();
  for (std::int64_t count = 1; count <= max_rows(); count += kRowsApart) {
    const std::int64_t begin = max_rows() - count;
    ASSERT_TRUE(same_bits(product({0, count}), alone.data())) << count << " rows";
    ASSERT_TRUE(same_bits(product({begin, max_rows()}), alone.data() + begin * kPanelColumns))
        << "the last " << count << " rows";
  }
}

TEST_P(Kernel, GivesTheSameBitsWhereverKIsCut) {
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{7}, max_rows()}) {
    const Sums whole = product({0, rows});
    std::vector<Interval> steps;
    for (std::int64_t cut = 0; cut < kDepth; cut += kKStep) {
      steps.push_back({cut, cut + kKStep});
      if (cut == 0) continue;
      ASSERT_TRUE(same_bits(whole, product({0, rows}, {{0, cut}, {cut, kDepth}}).data()))
          << rows << " rows, cut at " << cut;
    }
    ASSERT_TRUE(same_bits(whole, product({0, rows}, steps).data())) << rows << " rows, all cuts";
  }
}

TEST_P(Kernel, WritesNoSumsButItsOwn) {
  constexpr float kUntouched = -77;
  const std::int64_t around = 2 * kPanelColumns;
  for (std::int64_t count = 1; count <= max_rows(); ++count) {
    const std::int64_t mine = count * kPanelColumns;
    const Fenced place(static_cast<std::size_t>(mine + 2 * around) * sizeof(float));
    auto* all = reinterpret_cast<float*>(place.data());
    std::fill_n(all, mine + 2 * around, kUntouched);
    for (const bool first : {true, false}) {
      multiply({0, count}, {0, kKStep}, all + around, first);
      for (std::int64_t i = 0; i < around; ++i) {
        ASSERT_EQ(all[i], kUntouched) << count << " rows, " << around - i << " before";
        ASSERT_EQ(all[around + mine + i], kUntouched) << count << " rows, " << i << " behind";
      }
    }
  }
}

// Whatever is asked for, wherever it is: memory that isn't there is not read.
TEST_P(Kernel, AsksAheadWithoutReading) {
  const Sums want = product({0, max_rows()});
  const auto rows = packed_rows({0, max_rows()}, {0, kDepth});
  const auto panel = packed_panel({0, kDepth});
  const Fenced place(want.size() * sizeof(float));
  auto* sums = reinterpret_cast<float*>(place.data());
  for (const std::int64_t bytes : {1, 64, 1000, 1 << 20}) {
    TileCall call = call_of(*rows, *panel, {0, kDepth}, sums);
    call.ahead = {.first = panel->data() + bytes_of(kDepth * kPanelColumns),
                  .stride = 3 * bytes,
                  .bytes = bytes,
                  .rows = 5};
    call.rows_ahead = panel->data() + bytes_of(kDepth * kPanelColumns);
    kernel_->multiply(call);
    EXPECT_TRUE(same_bits(want, sums)) << bytes;
  }
}

TEST_P(Kernel, LeavesColumnsOfZerosZero) {
  for (std::int64_t k = 0; k < kDepth; ++k) {
    for (std::int64_t col = 50; col < kPanelColumns; ++col) w(k, col) = 0;
  }
  const Sums got = product({0, max_rows()});
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (i % kPanelColumns >= 50) {
      ASSERT_EQ(got[i], 0) << "element " << i;
    }
  }
}

TEST_P(Kernel, KeepsNotANumberInItsRow) {
  if (max_rows() < 3) GTEST_SKIP() << "has no row between two others";
  const Sums before = product({0, 3});
  x(1, 40) = std::numeric_limits<float>::infinity();
  x(1, 41) = std::numeric_limits<float>::quiet_NaN();
  const Sums after = product({0, 3});
  for (std::size_t col = 0; col < kPanelColumns; ++col) {
    ASSERT_EQ(after[col], before[col]);
    ASSERT_TRUE(std::isnan(after[kPanelColumns + col]));
    ASSERT_EQ(after[2 * kPanelColumns + col], before[2 * kPanelColumns + col]);
  }
}

// Which elements are not numbers depends on no other row. Their bits may: Loops::finish makes them
// alike.
TEST_P(Kernel, GivesNotANumberWhateverTheCompany) {
  std::mt19937 random(7);
  const auto spoil = [&](float& value) {
    constexpr std::uint32_t kSpecial[] = {0x7f800000U, 0x7fc00000U, 0x7fc20000U, 0x7fff0000U};
    if (random() % 97 == 0)
      value = std::bit_cast<float>(kSpecial[random() % 4] | (random() % 2 == 0 ? 0x80000000U : 0U));
  };
  const auto with_one_nan = [](Sums sums) {
    for (float& sum : sums) sum = std::isnan(sum) ? std::numeric_limits<float>::quiet_NaN() : sum;
    return sums;
  };
  std::for_each(x_.begin(), x_.end(), spoil);
  std::for_each(w_.begin(), w_.end(), spoil);
  const Sums alone = with_one_nan(one_by_one());
  for (std::int64_t count = 1; count <= max_rows(); count += kRowsApart) {
    const Sums whole = with_one_nan(product({0, count}));
    ASSERT_TRUE(same_bits(whole, alone.data())) << count << " rows";
    const Sums cut = with_one_nan(product({0, count}, {{0, kKStep}, {kKStep, kDepth}}));
    ASSERT_TRUE(same_bits(cut, alone.data())) << count << " rows in two parts";
  }
}

TEST_P(Kernel, WorksOnBlocksThatItCanMultiply) {
  const Blocking blocking = kernel_->blocking();
  EXPECT_GE(blocking.rows, max_rows());
  EXPECT_EQ(blocking.rows % max_rows(), 0) << "the last call of each block has few rows";
  EXPECT_GE(blocking.panels, 1);
  EXPECT_GE(blocking.k, kKStep);
  EXPECT_EQ(blocking.k % kKStep, 0);
}

INSTANTIATE_TEST_SUITE_P(All, Kernel, testing::ValuesIn(kernels()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace plait::gemm
