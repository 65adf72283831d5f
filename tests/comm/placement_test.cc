#include "comm/placement.h"

#include <gtest/gtest.h>

namespace plait::comm {
namespace {

TEST(Placement, HostsThatAreNodesOfASum) {
  EXPECT_EQ(ranks_per_host({"a", "a", "b", "b"}), 2);
  EXPECT_EQ(ranks_per_host({"a", "a", "b", "b", "c", "c"}), 2);
  EXPECT_EQ(ranks_per_host({"a", "a", "a", "a", "b", "b", "b", "b"}), 4);
}

TEST(Placement, HostsThatAreNot) {
  EXPECT_EQ(ranks_per_host({}), 1);
  EXPECT_EQ(ranks_per_host({"a"}), 1);
  EXPECT_EQ(ranks_per_host({"a", "a"}), 1) << "one host";
  EXPECT_EQ(ranks_per_host({"a", "b"}), 1);
  EXPECT_EQ(ranks_per_host({"a", "b", "a", "b"}), 1) << "not in rank order";
  EXPECT_EQ(ranks_per_host({"a", "b", "b", "a"}), 1);
  EXPECT_EQ(ranks_per_host({"a", "a", "b"}), 1);
  EXPECT_EQ(ranks_per_host({"a", "a", "a", "b"}), 1);
  EXPECT_EQ(ranks_per_host({"a", "a", "a", "b", "b", "b"}), 1) << "no power of two";
  EXPECT_EQ(ranks_per_host({"a", "a", "b", "b", "b", "b", "a", "a"}), 1);
  EXPECT_EQ(ranks_per_host({"a", "a", "", ""}), 1) << "unknown";
}

}  // namespace
}  // namespace plait::comm
