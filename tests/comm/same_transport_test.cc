// Ranks that have chosen different transports are refused at the first text that they exchange.
#include "comm/session/same_transport.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/ranks.h"

namespace plait::comm {
namespace {

// An all-gather in which the other rank brings the same text, sent by another transport.
AllGatherBytes beside(const std::string& transport) {
  return [transport](const std::string& mine) {
    std::string theirs = mine;
    if (theirs.starts_with("tcp")) theirs.replace(0, 3, transport);
    return std::vector<std::string>{mine, theirs};
  };
}

TEST(SameTransport, TextsComeThroughAsTheyWere) {
  const AllGatherBytes all_gather = with_transport_check(beside("tcp"), "tcp", 2);
  for (const char* text : {"first", "", "second\nline"})
    EXPECT_EQ(all_gather(text), (std::vector<std::string>{text, text}));
}

TEST(SameTransport, ADifferenceNamesBothRanksAndTheSetting) {
  const AllGatherBytes all_gather = with_transport_check(beside("shm"), "tcp", 2);
  const Error error = expect_error(Code::mismatch, [&] { all_gather("first"); });
  EXPECT_EQ(error.culprit(), 1);
  EXPECT_STREQ(
      error.what(),
      "rank 1 uses the transport shm, rank 0 tcp: PLAIT_TRANSPORT must be the same for all "
      "ranks");
}

TEST(SameTransport, EveryCallChecksHowManyTextsHaveCome) {
  bool is_wrong = false;
  const auto lent = [&](const std::string& mine) {
    return std::vector<std::string>(is_wrong ? 3 : 2, mine);
  };
  const AllGatherBytes all_gather = with_transport_check(lent, "tcp", 2);
  all_gather("first");
  is_wrong = true;
  const Error error = expect_error(Code::invalid_argument, [&] { all_gather("second"); });
  EXPECT_STREQ(error.what(), "the caller's all_gather returned 3 parts in a world of 2");
}

}  // namespace
}  // namespace plait::comm
