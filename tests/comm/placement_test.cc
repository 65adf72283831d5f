#include "comm/session/placement.h"

#include <gtest/gtest.h>

namespace plait::comm {
namespace {

int ranks_per_host(const std::vector<std::string>& hosts) {
  return placement_of(hosts, /*shares_clock=*/false).ranks_per_host;
}

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

TEST(Placement, CountsHosts) {
  EXPECT_EQ(placement_of({"a"}, false).hosts, 1);
  EXPECT_EQ(placement_of({"a", "b", "a"}, false).hosts, 2);
  EXPECT_EQ(placement_of({"a", "b", "a"}, true).hosts, 2) << "all have told their hosts";
}

TEST(Placement, ARankThatDoesNotKnowItsHostIsAloneUnlessAllShareAClock) {
  EXPECT_EQ(placement_of({"a", "", "a", ""}, false).hosts, 3);
  EXPECT_EQ(placement_of({"", ""}, false).hosts, 2);
  EXPECT_EQ(placement_of({"a", "", "b"}, true).hosts, 1);
}

}  // namespace
}  // namespace plait::comm
