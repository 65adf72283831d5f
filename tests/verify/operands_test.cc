#include "verify/operands.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "plait/quantized.h"
#include "tensor/compare.h"
#include "verify/case.h"

namespace plait::verify {
namespace {

TEST(GuardedMatrix, SeesEveryByteAroundIt) {
  const Guarded matrix(Dtype::bf16, 3, 5);
  Guarded guarded(Dtype::bf16, 3, 5);
  guarded.poison();
  EXPECT_TRUE(guarded.is_intact());
  const TensorView& view = guarded.view();
  auto* first = static_cast<std::byte*>(view.data);
  const auto row = static_cast<std::ptrdiff_t>(view.row_stride) * 2;
  for (const std::ptrdiff_t outside :
       {std::ptrdiff_t{-1}, std::ptrdiff_t{10}, row - 1, 2 * row + 10}) {
    first[outside] ^= std::byte{1};
    EXPECT_FALSE(guarded.is_intact()) << outside;
    first[outside] ^= std::byte{1};
  }
  for (const std::ptrdiff_t inside : {std::ptrdiff_t{0}, std::ptrdiff_t{9}, row, 2 * row + 9}) {
    first[inside] ^= std::byte{1};
    EXPECT_TRUE(guarded.is_intact()) << inside;
  }
}

VerifyCase example() {
  VerifyCase one;
  one.seed = 5;
  one.op = Operator::matmul_all_reduce;
  one.m = 7;
  one.n = {9, 9};
  one.k = {6, 4};
  return one;
}

TEST(Operands, AreTheSameEachTimeTheyAreMade) {
  const VerifyCase one = example();
  const VerifyOperands first(one, 1, 2);
  const VerifyOperands again(one, 1, 2);
  const VerifyOperands other(one, 0, 2);
  EXPECT_EQ(first.x().cols, 4);
  EXPECT_EQ(other.x().cols, 6);
  EXPECT_TRUE(tensor::same_bits(first.x(), again.x()));
  EXPECT_TRUE(tensor::same_bits(first.plain(), again.plain()));
  EXPECT_NE(first.x_at(0, 0), other.x_at(0, 0));
}

TEST(Operands, AreReadAsTheyAreMultiplied) {
  const VerifyCase one = example();
  const VerifyOperands operands(one, 0, 2);
  for (std::int64_t row = 0; row < one.m; ++row)
    for (std::int64_t k = 0; k < 6; ++k)
      EXPECT_EQ(operands.x_at(row, k), element(operands.x(), row, k));
  for (std::int64_t k = 0; k < 6; ++k)
    for (std::int64_t column = 0; column < 9; ++column)
      EXPECT_EQ(operands.weight_at(k, column), element(operands.plain(), column, k));
}

TEST(Operands, WithoutKHaveQuantisedPartsToo) {
  const WeightView whole = {.view = {.dtype = Dtype::f32, .rows = 9},
                            .layout = WeightLayout::out_in};
  for (const char* scheme : {"s8:group=43", "s8:channel", "s8:group=43:offsets"}) {
    const QuantizedWeight quantized = quantize(whole, *parse_quant_scheme(scheme), /*threads=*/1);
    EXPECT_EQ(part_of(quantized, {4, 9}, {0, 0}).values().rows, 5) << scheme;
  }
}

}  // namespace
}  // namespace plait::verify
