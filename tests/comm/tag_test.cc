#include "plait/tag.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace plait {
namespace {

TEST(Tag, NamesEveryOperation) {
  std::set<std::string_view> names;
  for (int value = 0; value <= static_cast<int>(Operation::expert_parallel_mlp); ++value)
    names.insert(name(static_cast<Operation>(value)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Operation::expert_parallel_mlp) + 1);
  EXPECT_EQ(name(Operation::all_reduce), "all_reduce");
  EXPECT_EQ(name(Operation::with_link), "with_link");
  EXPECT_EQ(name(Operation::split), "split");
  EXPECT_EQ(name(Operation::matmul_all_reduce), "matmul_all_reduce");
  EXPECT_EQ(name(Operation::all_reduce_matmul), "all_reduce_matmul");
  // A peer of another version may send this.
  EXPECT_EQ(name(static_cast<Operation>(9999)), "custom");
}

TEST(Tag, DifferenceNamesTheFirstFieldThatDiffers) {
  const Tag tag = {.operation = Operation::all_gather, .sizes = {100, 7, 0}};
  Tag other = tag;
  other.chunk = 3;
  EXPECT_EQ(difference(tag, other), "the chunk: 0 and 3");
  other.call = 2;
  EXPECT_EQ(difference(tag, other), "the order of calls: 0 and 2");
  other.plan = 9;
  EXPECT_EQ(difference(tag, other), "the plan");
  other.sizes[1] = 8;
  EXPECT_EQ(difference(tag, other), "the counts of the shards");
  other.sizes[0] = 120;
  EXPECT_EQ(difference(tag, other), "elements: 100 and 120");
  other.wire = Dtype::bf16;
  EXPECT_EQ(difference(tag, other), "the wire: f32 and bf16");
  other.dtype = Dtype::f16;
  EXPECT_EQ(difference(tag, other), "the dtype: f32 and f16");
  other.operation = Operation::barrier;
  EXPECT_EQ(difference(tag, other), "the operator: all_gather and barrier");
}

TEST(Tag, CallsSizesByWhatTheyAre) {
  const auto sizes = [](Operation operation, std::array<std::int64_t, 3> values) {
    return difference({.operation = operation}, {.operation = operation, .sizes = values});
  };
  EXPECT_EQ(sizes(Operation::custom, {5, 0, 0}), "m: 0 and 5");
  EXPECT_EQ(sizes(Operation::broadcast, {0, 0, 1}), "root: 0 and 1");
  EXPECT_EQ(sizes(Operation::make_mailbox, {0, 64, 0}), "slot bytes: 0 and 64");
  EXPECT_EQ(sizes(Operation::all_to_all_rows, {0, 4, 0}), "groups: 0 and 4");
  EXPECT_EQ(sizes(Operation::matmul_all_gather, {0, 0, 96}), "k: 0 and 96");
  EXPECT_EQ(sizes(Operation::all_to_all_matmul, {0, 64, 0}), "n: 0 and 64");
  EXPECT_EQ(difference({.operation = Operation::matmul_all_to_all},
                       {.operation = Operation::matmul_all_to_all, .plan = 9}),
            "the plan or the groups of columns");
  EXPECT_EQ(sizes(Operation::expert_parallel_mlp, {0, 7, 0}), "rows: 0 and 7");
}

// Beside an operator's k, which may be as large as any.
TEST(Tag, TellsTheResultsDtypeAndTheBiasFromASize) {
  constexpr std::int64_t kDepth = (std::int64_t{1} << 42) - 1;
  const auto tag = [](Dtype out, std::int64_t k, bool bias) {
    return Tag{
        .operation = Operation::all_reduce_matmul,
        .sizes = {0, 0, k + kTagOut * static_cast<std::int64_t>(out) + (bias ? kTagBias : 0)}};
  };
  const Tag one = tag(Dtype::bf16, kDepth, true);
  EXPECT_EQ(difference(one, tag(Dtype::f16, kDepth, true)), "the dtype of out: bf16 and f16");
  EXPECT_EQ(difference(one, tag(Dtype::bf16, kDepth, false)), "the bias: one and none");
  EXPECT_EQ(difference(one, tag(Dtype::f32, 96, false)), "k: 4398046511103 and 96");
}

}  // namespace
}  // namespace plait
