#include "verify/nodes.h"

#include <gtest/gtest.h>

#include <set>

namespace plait::verify {
namespace {

OpDesc product() { return {.op = Operator::matmul_all_reduce, .m = 4, .n = 4, .k = 1}; }

TEST(Nodes, AreForPowersOfTwoOfRanks) {
  for (const int world : {2, 4, 8, 16}) EXPECT_TRUE(can_have_nodes(world)) << world;
  for (const int world : {1, 3, 6, 12, 32}) EXPECT_FALSE(can_have_nodes(world)) << world;
}

TEST(Nodes, RandomSharesAreNodesOfTheTree) {
  Random random(1, 1);
  for (const int world : {2, 4, 8, 16}) {
    std::set<std::int64_t> seen;
    for (int i = 0; i < 50; ++i) {
      for (const std::int64_t unit : {32, 128}) {
        const std::int64_t share = random_node(random, world, unit);
        seen.insert(share);
        EXPECT_EQ(share % unit, 0);
        const SumTree tree =
            tree_of(product(), std::vector<std::int64_t>(world, share), Dtype::f32);
        EXPECT_EQ(tree.refusal, nullptr) << share << " of " << world;
      }
    }
    EXPECT_GT(seen.size(), 3U);
  }
}

TEST(Nodes, UnequalSharesHaveNoCommonTree) {
  EXPECT_STREQ(tree_of(product(), {1024, 1056}, Dtype::f32).refusal,
               "the ranks' shares of k differ");
}

TEST(Nodes, LongRowsAreFew) {
  EXPECT_EQ(as_many_rows(40, 1000), 40);
  EXPECT_EQ(as_many_rows(40, 4000), 40);
  EXPECT_EQ(as_many_rows(40, 16000), 10);
  EXPECT_EQ(as_many_rows(40, 10'000'000), 1);
}

}  // namespace
}  // namespace plait::verify
