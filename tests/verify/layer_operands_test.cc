#include "verify/layer_operands.h"

#include <gtest/gtest.h>

#include "verify/layer_case.h"

namespace plait::verify {
namespace {

LayerCase example(bool row) {
  LayerCase one;
  one.seed = 7;
  one.row = row;
  one.m = 9;
  one.shares = {5, 0, 6};
  one.other = 8;
  return one;
}

TEST(LayerOperands, OfAllRanksAreTheWholeLayer) {
  for (const bool row : {false, true}) {
    const LayerCase one = example(row);
    std::int64_t outputs = 0;
    std::int64_t inputs = 0;
    std::int64_t rows = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const LayerOperands operands(one, rank);
      EXPECT_EQ(operands.outputs(), row ? 8 : 11);
      EXPECT_EQ(operands.inputs(), row ? 11 : 8);
      // The shards of ranks follow one another.
      const Range shard = row ? operands.own_inputs() : operands.own_outputs();
      EXPECT_EQ(shard.begin, row ? inputs : outputs);
      outputs += operands.own_outputs().end - operands.own_outputs().begin;
      inputs += operands.own_inputs().end - operands.own_inputs().begin;
      const Range tokens = row ? operands.out_rows() : operands.x_rows();
      EXPECT_EQ(tokens.begin, rows);
      rows = tokens.end;
    }
    EXPECT_EQ(outputs, row ? 3 * 8 : 11);
    EXPECT_EQ(inputs, row ? 11 : 3 * 8);
    EXPECT_EQ(rows, 9);
  }
}

TEST(LayerOperands, AreTheSameOnEveryRank) {
  const LayerCase one = example(/*row=*/false);
  const LayerOperands first(one, 0);
  const LayerOperands last(one, 2);
  for (std::int64_t output = 0; output < 11; ++output) {
    for (std::int64_t input = 0; input < 8; ++input)
      EXPECT_EQ(first.weight_at(output, input), last.weight_at(output, input));
    EXPECT_EQ(first.grad_out_at(0, 2, output), last.grad_out_at(0, 2, output));
  }
  // A rank has a part of them.
  const Range rows = last.x_rows();
  EXPECT_EQ(element(last.x(0), 0, 3), first.x_at(0, rows.begin, 3));
}

}  // namespace
}  // namespace plait::verify
