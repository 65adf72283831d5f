#include "verify/exact.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace plait::verify {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool is_right(const Exact& sum, double got, const tensor::Roundings& way = {.terms = 2}) {
  return sum.what_is_wrong_with(got, way).empty();
}

TEST(Exact, TakesWhatIsNearEnough) {
  Exact sum;
  sum.add(3, 0.5);
  sum.add(-1, 1);
  EXPECT_TRUE(is_right(sum, 0.5));
  EXPECT_TRUE(is_right(sum, 0.5 + 0x1p-23));
  EXPECT_FALSE(is_right(sum, 0.5 + 0x1p-10));
  EXPECT_FALSE(is_right(sum, kNan));
  EXPECT_FALSE(is_right(sum, kInfinity));
  EXPECT_EQ(sum.what_is_wrong_with(2, {.terms = 2}).substr(0, 24), "is 2 but the sum is 0.5 ");
}

TEST(Exact, WantsNoNumberWhereThereIsNone) {
  Exact sum;
  sum.add(kInfinity, 1);
  sum.add(-kInfinity, 1);
  EXPECT_TRUE(is_right(sum, kNan));
  EXPECT_EQ(sum.what_is_wrong_with(7, {.terms = 2}), "is 7 but the sum is not a number");
}

// The order of addition decides what overflows first.
TEST(Exact, KnowsNothingOfWhatMayHaveOverflowed) {
  Exact sum;
  sum.add(300, 300);
  sum.add(-300, 300);
  for (const double got : {0.0, kInfinity, kNan})
    EXPECT_TRUE(is_right(sum, got, {.terms = 2, .wire = Dtype::f16}));
  EXPECT_FALSE(is_right(sum, kInfinity, {.terms = 2, .wire = Dtype::bf16}));
}

// Some kernels treat denormals as 0.
TEST(Exact, AllowsDenormalsToBeLost) {
  Exact sum;
  sum.add(0x1p-127, 1);
  EXPECT_TRUE(is_right(sum, 0));
  EXPECT_FALSE(is_right(sum, 0x1p-120));
}

}  // namespace
}  // namespace plait::verify
