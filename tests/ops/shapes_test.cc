// Which rank has which rows, and in what chunks travel (ops/shapes.h).
#include "ops/shapes.h"

#include <gtest/gtest.h>

#include "ops/operators.h"

namespace plait::ops {
namespace {

// 10 rows of 4 ranks → 3 3 2 2
TEST(Shapes, ShardsFollowOneAnother) {
  for (const int world : {1, 2, 4, 7}) {
    for (const std::int64_t whole : {0, 1, 6, 10, 29}) {
      std::int64_t end = 0;
      for (int rank = 0; rank < world; ++rank) {
        const Range shard = shard_of(whole, rank, world);
        EXPECT_EQ(shard.begin, end);
        EXPECT_EQ(length(shard), whole / world + (rank < whole % world ? 1 : 0));
        EXPECT_EQ(share_of(whole, rank, world), length(shard));
        end = shard.end;
      }
      EXPECT_EQ(end, whole);
    }
  }
}

TEST(Shapes, AllRowsAreNoShard) {
  EXPECT_EQ(range_of(Rows::all, 10, 2, 4), (Range{0, 10}));
  EXPECT_EQ(range_of(Rows::own, 10, 2, 4), (Range{6, 8}));
  EXPECT_EQ(count(Rows::own, 10, 3, 4), 2);
}

TEST(Shapes, ProductsHaveTheRowsOfWhatTheyReadOrMake) {
  for (const Operator op : every_operator()) {
    const bool own = op == Operator::matmul_all_gather || op == Operator::reduce_scatter_matmul;
    EXPECT_EQ(multiplied_rows(op), own ? Rows::own : Rows::all) << name(op);
  }
}

// Rounding x, which travels first, would change it. A partial sum has a wire of its own, and is one
// of as many equal shares as there are ranks only where the wire keeps it in f32.
TEST(Shapes, OnlyPartialSumsHaveAWire) {
  for (const Operator op : communicating_operators()) {
    const bool partial = traits_of(op).shares_k;
    EXPECT_EQ(wire_of(op, Dtype::bf16, Dtype::f16), partial ? Dtype::f16 : Dtype::bf16);
    EXPECT_EQ(wire_of(op, Dtype::bf16, kAutomaticWire, 1), partial ? Dtype::f32 : Dtype::bf16);
    EXPECT_EQ(wire_of(op, Dtype::bf16, kAutomaticWire, 2), Dtype::bf16);
    EXPECT_EQ(wire_of(op, Dtype::f32, kAutomaticWire, 2), Dtype::f32);
    EXPECT_EQ(shares_of(op, Dtype::f32, 8, 1), partial ? 8 : 1) << name(op);
    EXPECT_EQ(shares_of(op, Dtype::bf16, 8, 1), 1) << name(op);
  }
  EXPECT_EQ(shares_of(Operator::matmul, Dtype::f32, 8, 4), 4);
}

}  // namespace
}  // namespace plait::ops
