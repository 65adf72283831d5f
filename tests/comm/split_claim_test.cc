#include "comm/session/split_claim.h"

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
  claims[1] = "host";
  for (const int color : {0, -1}) {
    const Error error = expect_error(Code::mismatch, [&] { members_of(claims, color); });
    EXPECT_EQ(error.culprit(), 1);
    EXPECT_STREQ(error.what(), "split: rank 1 has sent 4 bytes instead of its color and key");
  }
}

}  // namespace
}  // namespace plait::comm
