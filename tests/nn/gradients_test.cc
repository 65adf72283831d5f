#include "nn/gradients.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>

#include "gemm/matrix.h"
#include "tensor/compare.h"
#include "tensor/kernels.h"

namespace plait::nn {
namespace {

float sum_of(const Matrix& rows, std::int64_t column, float start) {
  float sum = start;
  for (std::int64_t row = 0; row < rows.view.rows; ++row)
    sum += static_cast<float>(at(rows.view, row, column));
  return sum;
}

// Blocks of columns go to different threads; the order of rows stays.
TEST(SumsOfRows, AreInF32AndInTheOrderOfRows) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f32}) {
    for (const std::int64_t columns : {1, 63, 1000}) {
      const Matrix rows(dtype, 37, columns, 3);
      const Matrix one(Dtype::f32, 1, columns);
      const Matrix three(Dtype::f32, 1, columns);
      sum_rows(rows.view, one.view, /*accumulate=*/false, /*threads=*/1);
      sum_rows(rows.view, three.view, /*accumulate=*/false, /*threads=*/3);
      EXPECT_TRUE(tensor::same_bits(one.view, three.view));
      for (std::int64_t j = 0; j < columns; ++j)
        ASSERT_EQ(static_cast<float>(at(one.view, 0, j)), sum_of(rows, j, 0)) << j;
    }
  }
}

TEST(SumsOfRows, AreAddedToWhatIsThere) {
  const Matrix rows(Dtype::f32, 5, 70, 3);
  const Matrix sum(Dtype::f32, 1, 70);
  sum_rows(rows.view, sum.view, /*accumulate=*/false, 1);
  const Matrix twice(Dtype::f32, 1, 70);
  sum_rows(rows.view, twice.view, /*accumulate=*/false, 1);
  sum_rows(rows.view, twice.view, /*accumulate=*/true, 1);
  for (std::int64_t j = 0; j < 70; ++j)
    EXPECT_EQ(at(twice.view, 0, j), 2 * at(sum.view, 0, j)) << j;
}

TEST(SumsOfRows, OfNoRowsAreZero) {
  const Matrix rows(Dtype::f32, 0, 8);
  const Matrix sum(Dtype::f32, 1, 8, 9);
  sum_rows(rows.view, sum.view, /*accumulate=*/false, 1);
  for (std::int64_t j = 0; j < 8; ++j) EXPECT_EQ(at(sum.view, 0, j), 0);
}

// Whichever a row has, and whichever the processor makes of infinities.
TEST(SumsOfRows, HaveOneNotANumber) {
  const Matrix rows(Dtype::f32, 2, 2);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  auto* const first = static_cast<float*>(rows.view.row(0));
  auto* const second = static_cast<float*>(rows.view.row(1));
  first[0] = std::bit_cast<float>(0x7fc00001U);
  first[1] = kInfinity;
  second[1] = -kInfinity;
  const Matrix sum(Dtype::f32, 1, 2);
  sum_rows(rows.view, sum.view, /*accumulate=*/false, 1);
  for (int j = 0; j < 2; ++j)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(static_cast<float*>(sum.view.data)[j]), tensor::kNan);
}

}  // namespace
}  // namespace plait::nn
