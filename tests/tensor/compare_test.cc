#include "tensor/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <vector>

#include "tensor/sentence_of.h"

namespace plait::tensor {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// 4 rows of 6 columns, 9 apart; the gaps between rows differ in every matrix.
template <class T>
class Matrix {
 public:
  explicit Matrix(float between) : elements_(std::size_t{36}, T(between)) {
    for (int row = 0; row < 4; ++row) {
      for (int col = 0; col < 6; ++col) at(row, col) = T(static_cast<float>(10 * row + col));
    }
  }

  T& at(int row, int col) {
    return elements_[static_cast<std::size_t>(row) * 9 + static_cast<std::size_t>(col)];
  }

  ConstTensorView view() const {
    return {.data = elements_.data(), .dtype = kDtypeOf<T>, .rows = 4, .cols = 6, .row_stride = 9};
  }

 private:
  std::vector<T> elements_;
};

Allowed everywhere(double allowed) {
  return [allowed](std::int64_t, std::int64_t) { return allowed; };
}

TEST(Compare, EqualMatricesNeedNoTolerance) {
  const Matrix<float> got(-1), want(-2);
  const auto result = compare(got.view(), want.view(), everywhere(0));
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.elements, 24);
  EXPECT_EQ(result.differing, 0);
  EXPECT_EQ(result.describe(), "all 24 elements are equal");
}

TEST(Compare, FindsThePlantedWorstElement) {
  Matrix<float> got(-1), want(-2);
  got.at(0, 1) += 0.25F;  // within
  got.at(1, 3) += 0.75F;  // beyond the tolerance
  got.at(3, 5) -= 1.75F;  // the worst
  got.at(3, 0) += 1.5F;   // beyond it; later rows must not hide the worst
  const auto result = compare(got.view(), want.view(), everywhere(0.5));
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.differing, 4);
  EXPECT_EQ(result.beyond, 3);
  EXPECT_EQ(result.row, 3);
  EXPECT_EQ(result.col, 5);
  EXPECT_EQ(result.difference, 1.75);
  EXPECT_EQ(result.ratio, 3.5);
  EXPECT_EQ(result.describe(),
            "3 of 24 elements are off by more than allowed; worst at [3, 5]: got 33.25, want 35, "
            "|difference| 1.75 is 3.5 times the allowed 0.5");
}

TEST(Compare, JudgesEachElementByWhatIsAllowedThere) {
  Matrix<float> got(-1), want(-2);
  got.at(1, 1) += 1;
  got.at(2, 2) += 0.5F;
  const auto result = compare(got.view(), want.view(), [](std::int64_t row, std::int64_t col) {
    return row == 2 && col == 2 ? 0.125 : 1.0;
  });
  EXPECT_EQ(result.beyond, 1);
  EXPECT_EQ(result.row, 2);
  EXPECT_EQ(result.col, 2);
  EXPECT_EQ(result.ratio, 4);
}

TEST(Compare, WidensBothSides) {
  Matrix<Bf16> got(-1);
  const Matrix<float> want(-2);
  got.at(2, 0) = Bf16(20.125F);
  const auto result = compare(got.view(), want.view(), everywhere(0.25));
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.differing, 1);
  EXPECT_EQ(result.difference, 0.125);
  EXPECT_NE(result.describe().find("all 24 elements are as close as allowed, 1 of them not equal; "
                                   "worst at [2, 0]"),
            std::string::npos)
      << result.describe();
}

TEST(Compare, NansAreEqualToNansOnly) {
  Matrix<float> got(-1), want(-2);
  got.at(0, 0) = std::bit_cast<float>(0x7fc00000U);
  want.at(0, 0) = std::bit_cast<float>(0xffc00001U);
  EXPECT_TRUE(compare(got.view(), want.view(), everywhere(0)).ok());
  got.at(1, 1) += 1e30F;
  got.at(2, 3) = NAN;
  const auto result = compare(got.view(), want.view(), everywhere(1e-30));
  EXPECT_EQ(result.beyond, 2);
  EXPECT_EQ(result.row, 2);
  EXPECT_EQ(result.col, 3);
  EXPECT_TRUE(std::isinf(result.ratio));
}

TEST(Compare, NothingAllowsANanOrTheWrongInfinity) {
  Matrix<float> got(-1), want(-2);
  got.at(0, 0) = kInfinity;
  want.at(0, 0) = kInfinity;
  EXPECT_TRUE(compare(got.view(), want.view(), everywhere(0)).ok());
  for (const float bad : {NAN, -kInfinity, 0.0F}) {
    got.at(0, 0) = bad;
    EXPECT_EQ(compare(got.view(), want.view(), everywhere(HUGE_VAL)).beyond, 1) << bad;
  }
}

TEST(Compare, AToleranceThatIsNotANumberAllowsNothing) {
  Matrix<float> got(-1), want(-2);
  got.at(0, 0) += 1;
  EXPECT_FALSE(compare(got.view(), want.view(), everywhere(NAN)).ok());
}

TEST(Compare, OfNothingIsOk) {
  const Matrix<float> got(-1), want(-2);
  EXPECT_TRUE(compare(got.view().row_range(0, 0), want.view().row_range(0, 0), everywhere(0)).ok());
  EXPECT_TRUE(same_bits(got.view().column_range(6, 6), want.view().column_range(6, 6)));
}

TEST(Compare, RefusesMatricesThatCannotBeCompared) {
  const Matrix<float> got(-1), want(-2);
  const auto part = want.view().column_range(0, 5);
  EXPECT_EQ(sentence_of([&] { compare(got.view(), part, everywhere(0)); }),
            "compare: got is 4 x 6 but want is 4 x 5");
  EXPECT_EQ(sentence_of([&] { same_bits(got.view(), part); }),
            "same_bits: got is 4 x 6 but want is 4 x 5");
  EXPECT_EQ(sentence_of([&] { same_bits(got.view(), Matrix<Bf16>(0).view()); }),
            "same_bits: got is f32 but want is bf16");
  ConstTensorView there = got.view();
  there.device = Device::cuda(0);
  EXPECT_EQ(sentence_of([&] { same_bits(got.view(), there); }),
            "same_bits: want is on cuda:0, which the CPU cannot read");
}

TEST(SameBits, IgnoresWhatLiesBetweenTheRows) {
  EXPECT_TRUE(same_bits(Matrix<float>(-1).view(), Matrix<float>(-2).view()));
  EXPECT_TRUE(same_bits(Matrix<F16>(-1).view(), Matrix<F16>(-2).view()));
}

TEST(SameBits, FindsTheFirstDifferenceInRowOrder) {
  Matrix<Bf16> got(-1), want(-2);
  got.at(2, 4) = Bf16(25);
  got.at(3, 0) = Bf16(0);
  const auto result = same_bits(got.view(), want.view());
  EXPECT_FALSE(result);
  EXPECT_EQ(result.row, 2);
  EXPECT_EQ(result.col, 4);
  std::ostringstream text;
  text << result;
  EXPECT_EQ(text.str(), "first difference at [2, 4]: got bf16 0x41c8 (25), want 0x41c0 (24)");
}

TEST(SameBits, TellsZeroesAndNansApart) {
  Matrix<float> got(-1), want(-2);
  got.at(0, 0) = -0.0F;
  EXPECT_EQ(same_bits(got.view(), want.view()).describe(),
            "first difference at [0, 0]: got f32 0x80000000 (-0), want 0x00000000 (0)");
  got.at(0, 0) = std::bit_cast<float>(0x7fc00000U);
  want.at(0, 0) = std::bit_cast<float>(0x7fc00001U);
  EXPECT_FALSE(same_bits(got.view(), want.view()));
}

}  // namespace
}  // namespace plait::tensor
