#include "comm/tcp/lookup.h"

#include <gtest/gtest.h>

#include <string>

namespace plait::comm::tcp {
namespace {

std::optional<Found> look_up(const std::string& host) {
  return Lookup(host, 29600).wait(base::now() + 60 * base::kSecond);
}

TEST(Lookup, FiguresAreThereAtOnce) {
  const auto found = Lookup("10.0.0.1", 29600).wait(0);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->addresses.size(), 1U);
  EXPECT_EQ(show_host(found->addresses.front()), "10.0.0.1");
}

TEST(Lookup, ANameIsFoundInAWhile) {
  const auto found = look_up("localhost");
  ASSERT_TRUE(found);
  ASSERT_FALSE(found->addresses.empty());
  EXPECT_TRUE(found->addresses.front().is_loopback());
}

TEST(Lookup, SaysWhyThereIsNoAddress) {
  const auto found = look_up(std::string(64, 'x'));  // longer than a name may be
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->addresses.empty());
  EXPECT_FALSE(found->why.empty());
}

}  // namespace
}  // namespace plait::comm::tcp
