// Ranks that emulate different links are refused when a group is made.
#include "comm/session/same_link.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/ranks.h"

namespace plait::comm {
namespace {

std::string text_with(const char* link, const std::string& text) {
  if (link == nullptr) return link_and({}, text);
  return link_and(LinkView{.clock = std::make_shared<LinkClock>(parse_link(link), 1), .ranks = {0}},
                  text);
}

TEST(SameLink, TextsComeThroughAsTheyWere) {
  for (const char* link : {"1gbit,20us", static_cast<const char*>(nullptr)}) {
    std::vector<std::string> texts = {text_with(link, "a host"), text_with(link, ""),
                                      text_with(link, "a|b")};
    take_links_off(texts);
    EXPECT_EQ(texts, (std::vector<std::string>{"a host", "", "a|b"}));
  }
}

TEST(SameLink, ADifferenceNamesBothValuesAndTheSetting) {
  const auto refusal = [](std::vector<std::string> texts) {
    const Error error = expect_error(Code::mismatch, [&] { take_links_off(texts); });
    EXPECT_EQ(error.culprit(), 2);
    return std::string(error.what());
  };
  const std::string some = text_with("1gbit,20us", "host");
  const std::string other = text_with("10gbit,20us", "host");
  const std::string none = text_with(nullptr, "host");
  const std::string rule = ": the link (PLAIT_LINK) must be the same for all ranks";
  EXPECT_EQ(refusal({some, some, none}),
            "rank 0 emulates a link of 1gbit,20us, and rank 2 none" + rule);
  EXPECT_EQ(refusal({none, none, some}),
            "rank 0 emulates no link, and rank 2 one of 1gbit,20us" + rule);
  EXPECT_EQ(refusal({some, some, other}),
            "rank 0 emulates a link of 1gbit,20us, and rank 2 one of 10gbit,20us" + rule);
  EXPECT_EQ(refusal({some, some, "nonsense"}),
            "rank 0 emulates a link of 1gbit,20us, and rank 2 one of nonsense" + rule);
}

}  // namespace
}  // namespace plait::comm
