#include "base/host.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace plait::base {
namespace {

TEST(Host, HasAnIdThatStays) {
  const std::string id = host_id();
  EXPECT_EQ(id.size(), 32U);
  EXPECT_EQ(id, host_id());
}

TEST(Host, ClonesThatDifferInOneThingHaveIdsOfTheirOwn) {
  const std::set<std::string> ids = {
      id_of_host("boot", "machine", "name"), id_of_host("boot2", "machine", "name"),
      id_of_host("boot", "machine2", "name"), id_of_host("boot", "machine", "name2"),
      id_of_host("boot", "machinename", "")};
  EXPECT_EQ(ids.size(), 5U);
  EXPECT_EQ(id_of_host("boot", "machine", "name"),
            *ids.find(id_of_host("boot", "machine", "name")));
  EXPECT_EQ(id_of_host("", "machine", "name"), "");
}

}  // namespace
}  // namespace plait::base
