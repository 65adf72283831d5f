// Networks that were measured before (plan/known_links.h).
#include "plan/known_links.h"

#include <gtest/gtest.h>

namespace plait::plan {
namespace {

const TransportFigures kSlow = {.latency = 40'000, .bytes_per_ns = 0.125, .processor = 0.4};

TEST(KnownLinks, AreReadAsTheyWereWritten) {
  const KnownLinks links = {
      {"2 ranks on 2 hosts, tcp: a to b", kSlow},
      {"4 ranks on 2 hosts, tcp: a to b", {.latency = 1, .bytes_per_ns = 2.5, .processor = 0}}};
  EXPECT_EQ(parse_links(text_of(links)), links);
  EXPECT_EQ(text_of(KnownLinks()), "plait links 1\n");
  EXPECT_EQ(links_path("/here/plans"), "/here/plans.links");
}

TEST(KnownLinks, LeaveOutWhatTheyCannotRead) {
  EXPECT_TRUE(parse_links("").empty());
  EXPECT_TRUE(parse_links("plait links 2\na | 1 | 1 | 1\n").empty());
  const KnownLinks links = parse_links(
      "plait links 1\na | 1 | 1\nb | 1 | x | 1\nc | 1 | 0 | 1\nd | -1 | 1 | 1\ne | 1 | inf | 1\n"
      "f | 1 | 2 | 3\n");
  ASSERT_EQ(links.size(), 1U);
  EXPECT_EQ(links.begin()->first, "f");
}

TEST(KnownLinks, AreAlikeWithinTheErrorOfMeasuring) {
  TransportFigures other = kSlow;
  other.bytes_per_ns *= 1.2;
  other.latency *= 1.8;
  EXPECT_TRUE(are_alike(kSlow, other));
  EXPECT_TRUE(are_alike(other, kSlow));
  other.bytes_per_ns = 0.25;
  EXPECT_FALSE(are_alike(kSlow, other));
}

}  // namespace
}  // namespace plait::plan
