#include "base/random.h"

#include <gtest/gtest.h>

namespace plait::base {
namespace {

TEST(Random, NamesDiffer) {
  EXPECT_EQ(random_name().size(), 32);
  EXPECT_EQ(random_name().find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(random_name(), random_name());
}

}  // namespace
}  // namespace plait::base
