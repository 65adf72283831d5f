#include "base/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace plait::base {
namespace {

TEST(DidYouMean, NamesTheNearestWord) {
  const std::vector<std::string> verbs = {"run", "info", "bench", "trace"};
  EXPECT_EQ(did_you_mean("rnu", verbs), "; did you mean run?");
  EXPECT_EQ(did_you_mean("ifno", verbs), "; did you mean info?");
  EXPECT_EQ(did_you_mean("trac", verbs), "; did you mean trace?");
  EXPECT_EQ(did_you_mean("ben", verbs), "; did you mean bench?");
  EXPECT_EQ(did_you_mean("tarces", verbs), "; did you mean trace?");
}

TEST(DidYouMean, IsSilentWhereNothingIsNear) {
  EXPECT_EQ(did_you_mean("xylophone", std::vector<std::string>{"run", "info"}), "");
  EXPECT_EQ(did_you_mean("", std::vector<std::string>{"run"}), "");
  EXPECT_EQ(did_you_mean("run", std::vector<std::string>{}), "");
}

}  // namespace
}  // namespace plait::base
