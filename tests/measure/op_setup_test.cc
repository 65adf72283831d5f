#include "measure/op_setup.h"

#include <gtest/gtest.h>

#include "tensor/sentence_of.h"

namespace plait::measure {
namespace {

OpSetup example() {
  OpSetup setup;
  setup.op = Operator::matmul_all_reduce;
  setup.x = Dtype::f32;
  setup.out = Dtype::bf16;
  setup.weight = "s8:channel";
  setup.ranks = 3;
  setup.threads = 2;
  setup.transport = "shm";
  return setup;
}

TEST(OpSetups, AreTheProblemOfEachSize) {
  const tune::Problem problem = problem_of(example(), {.m = 8, .n = 64, .k = 96});
  EXPECT_EQ(name(problem.key),
            "op=matmul_all_reduce m=8 n=64 k=96 x=f32 w=s8:channel out=bf16 wire=f32 ranks=3 "
            "threads=2 transport=shm");
}

TEST(OpSetups, HaveAPlainWeightInTheDtypeOfX) {
  OpSetup setup = example();
  setup.weight = "plain";
  const tune::Problem plain = problem_of(setup, {.m = 8, .n = 64, .k = 96});
  setup.weight = "f32";
  EXPECT_NE(plain.key, problem_of(setup, {.m = 8, .n = 64, .k = 96}).key);
  setup.x = Dtype::bf16;
  setup.weight = "plain";
  EXPECT_NE(plain.key.weight, problem_of(setup, {.m = 8, .n = 64, .k = 96}).key.weight);
}

TEST(OpSetups, OfFamiliesHaveSharesOfRowsOrOfTheWeight) {
  PlanKey key = {.op = Operator::matmul_reduce_scatter,
                 .m = 10,
                 .n = 31,
                 .k = 20,
                 .x = Dtype::bf16,
                 .weight = "f32",
                 .out = Dtype::f32,
                 .world = 2,
                 .family = Family::columns};
  // 10 rows, of 20 inputs and 16 outputs; then all 31 outputs, or all 20 inputs once more.
  EXPECT_EQ(operand_bytes(key), 2 * (2.0 * 200 + 4 * (160 + 320) + 4 * 310));
  key.op = Operator::all_gather_matmul;
  EXPECT_EQ(operand_bytes(key), 2 * (2.0 * 200 + 4 * (160 + 320) + 2 * 200));
  // 5 rows, and the whole weight; then 10 rows of half of the columns.
  key.family = Family::ulysses;
  EXPECT_EQ(operand_bytes(key), 2 * (2.0 * 100 + 4 * (155 + 620) + 2 * 100));
  key.op = Operator::matmul_reduce_scatter;
  EXPECT_EQ(operand_bytes(key), 2 * (2.0 * 100 + 4 * (155 + 620) + 4 * 160));
  key.family = Family::operators;
  EXPECT_EQ(operand_bytes(key), tune::OpCase::operand_bytes(key));
}

TEST(OpSetups, ThatNoMemoryHoldsAreRefused) {
  const std::int64_t large = 1 << 24;
  const PlanKey key = problem_of(example(), {.m = large, .n = large, .k = large}).key;
  const std::string sentence = sentence_of([&] { check_memory(key); });
  EXPECT_TRUE(sentence.starts_with("m=16777216 n=16777216 k=16777216 with 3 ranks may take "))
      << sentence;
  check_memory(problem_of(example(), {.m = 8, .n = 64, .k = 96}).key);
}

}  // namespace
}  // namespace plait::measure
