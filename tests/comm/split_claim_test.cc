#include "comm/split_claim.h"

#include <gtest/gtest.h>

#include "conformance/ranks.h"

namespace plait::comm {
namespace {

std::vector<std::string> bytes_of(const std::vector<SplitClaim>& claims) {
  std::vector<std::string> all;
  all.reserve(claims.size());
  for (const SplitClaim& claim : claims) all.push_back(claim.bytes());
  return all;
}

TEST(SplitClaim, MembersAreInTheOrderOfTheirKeys) {
  const auto claims = bytes_of({{1, 5}, {0, 0}, {1, -2}, {1, 5}, {0, 0}});
  EXPECT_EQ(members_of(claims, 1), (std::vector<int>{2, 0, 3}));
  EXPECT_EQ(members_of(claims, 0), (std::vector<int>{1, 4})) << "equal keys: in rank order";
}

TEST(SplitClaim, ANegativeColorJoinsNoPart) {
  const auto claims = bytes_of({{-1, 0}, {-1, 1}, {3, 0}});
  EXPECT_TRUE(members_of(claims, -1).empty());
  EXPECT_TRUE(members_of(claims, 2).empty());
}

TEST(SplitClaim, RefusesWhatIsNone) {
  auto claims = bytes_of({{0, 0}, {0, 1}});
  EXPECT_TRUE(SplitClaim::is_one(claims[1]));
  claims[1] = "host";
  EXPECT_FALSE(SplitClaim::is_one(claims[1]));
  const Error error =
      conformance::expect_error(Code::invalid_argument, [&] { members_of(claims, 0); });
  EXPECT_STREQ(error.what(), "split: a rank sent 4 bytes");
}

}  // namespace
}  // namespace plait::comm
