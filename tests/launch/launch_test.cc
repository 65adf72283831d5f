#include "launch/launch.h"

#include <gtest/gtest.h>

namespace plait::launch {
namespace {

TEST(Launch, NamesTheRanksOfTheWholeWorld) {
  Launch launch;
  launch.bindings.resize(3);
  launch.part.first = 4;
  EXPECT_EQ(launch.members(), 3U);
  EXPECT_EQ(launch.show({1}), "rank 5");
  EXPECT_EQ(launch.show({0, 2}), "ranks 4 and 6");
}

TEST(Launch, NamesTheHostsWhereItStartsAgents) {
  Launch launch;
  launch.bindings.resize(12);
  launch.hosts = {{.host = "node1", .ranks = 4},
                  {.host = "me@node2", .ranks = 4},
                  {.host = "node3", .ranks = 4}};
  EXPECT_EQ(launch.members(), 3U);
  EXPECT_EQ(launch.show({1}), "the run on me@node2");
  EXPECT_EQ(launch.show({0, 2}), "the runs on node1 and node3");
  EXPECT_EQ(launch.show({0, 1, 2}), "the runs on node1, me@node2 and node3");
}

}  // namespace
}  // namespace plait::launch
