#include "comm/control/sharing_domain.h"

#include <gtest/gtest.h>

#include <string>

namespace plait::comm::tcp {
namespace {

TEST(Home, IsOneWordThatStays) {
  const std::string home = home_of_this_process("a b/c");
  EXPECT_EQ(home, home_of_this_process("a b/c"));
  EXPECT_TRUE(home.ends_with("/a_b/c")) << home;
  EXPECT_EQ(home.find(' '), home.npos);
}

TEST(Home, TheFirstDifferenceIsTold) {
  const std::string mine = "kernel/machine/net:[1]/pid:[1]/0/";
  EXPECT_EQ(difference_of(mine, mine), "");
  EXPECT_EQ(difference_of(mine, "kernel/other/net:[1]/pid:[2]/0/"),
            "its host name or /etc/machine-id is another");
  EXPECT_EQ(difference_of(mine, "kernel/machine/net:[2]/pid:[1]/0/"),
            "it is in another network namespace");
  EXPECT_EQ(difference_of(mine, "kernel/machine/net:[1]/pid:[2]/0/"),
            "it is in another process namespace");
  EXPECT_EQ(difference_of(mine, "kernel/machine/net:[1]/pid:[1]/7/"), "it has another user");
  EXPECT_EQ(difference_of(mine, "kernel/machine/net:[1]/pid:[1]/0/a/b"),
            "its PLAIT_HOST is another");
}

TEST(Home, OfAnotherKernelNothingIsExpected) {
  EXPECT_EQ(difference_of("kernel/machine/net:[1]/pid:[1]/0/", "other/machine/net:[1]/pid:[1]/0/"),
            "");
  EXPECT_EQ(difference_of("", "kernel/machine/net:[1]/pid:[1]/0/"), "");
  EXPECT_EQ(difference_of("kernel/machine/net:[1]/pid:[1]/0/", ""), "");
}

}  // namespace
}  // namespace plait::comm::tcp
