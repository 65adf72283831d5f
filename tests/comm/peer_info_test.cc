// Facts that ranks over TCP know of each other by their descriptions of themselves.
#include "comm/meet/peer_info.h"

#include <gtest/gtest.h>

#include <string>

#include "base/text.h"

namespace plait::comm::tcp {
namespace {

PeerInfo info(const std::string& host, const std::string& hosts = "127.0.0.1") {
  PeerInfo made = info_of_this_process(29600);
  made.host = host;
  made.hosts = hosts;
  return made;
}

TEST(PeerInfo, HostsThatCannotBeToldApartAreDifferentOnes) {
  EXPECT_TRUE(is_same_host(info("a"), info("a")));
  EXPECT_FALSE(is_same_host(info("a"), info("b")));
  EXPECT_FALSE(is_same_host(info(kUnknown), info(kUnknown)));
}

TEST(PeerInfo, RanksOfAnotherBuildOrTransportAreRefused) {
  const PeerInfo mine = info("a");
  EXPECT_FALSE(find_difference(1, info("b"), 0, mine));
  PeerInfo other = mine;
  other.build = "another";
  const auto build = find_difference(1, other, 0, mine);
  ASSERT_TRUE(build);
  EXPECT_EQ(build->code(), Code::mismatch);
  EXPECT_EQ(build->culprit(), 1);
  EXPECT_NE(std::string(build->what()).find("rank 1 runs plait another"), std::string::npos);
  other = mine;
  other.transport = "ucx";
  const auto transport = find_difference(1, other, 0, mine);
  ASSERT_TRUE(transport);
  EXPECT_NE(std::string(transport->what()).find("ucx"), std::string::npos) << transport->what();
}

TEST(PeerInfo, RanksThatShareNoFamilyOfAddressesAreRefusedWhereTheUserHasChosenOne) {
  const PeerInfo four = info("a", "192.0.2.1");
  PeerInfo six = info("b", "2001:db8::1");
  EXPECT_FALSE(find_families_apart({four, six}));
  six.interface = "eth1";
  const auto apart = find_families_apart({four, info("c", "192.0.2.2,2001:db8::2"), six});
  ASSERT_TRUE(apart);
  EXPECT_EQ(apart->culprit(), 2);
  EXPECT_NE(std::string(apart->what()).find("rank 2 only IPv6 (PLAIT_INTERFACE=eth1)"),
            std::string::npos)
      << apart->what();
  six.host = four.host;  // loopback connects them
  EXPECT_FALSE(find_families_apart({four, six}));
}

TEST(PeerInfo, LoopbackLeadsToTheVeryHostAlone) {
  const std::string both = "192.0.2.1,127.0.0.1";
  const auto near = addresses_of(info("a", both), info("a"));
  ASSERT_EQ(near.size(), 2U);
  EXPECT_FALSE(near[0].is_loopback());
  EXPECT_TRUE(near[1].is_loopback());
  EXPECT_EQ(addresses_of(info("a", both), info("b")).size(), 1U);
  EXPECT_EQ(addresses_of(info(kUnknown, both), info(kUnknown)).size(), 2U);
}

// A name in a description would be a question to a name server, which may take a minute.
TEST(PeerInfo, OnlyAddressesInFiguresAreBelieved) {
  PeerInfo info = info_of_this_process(29600);
  info.hosts = "localhost,?";
  EXPECT_TRUE(addresses_of(info, info).empty());
}

TEST(PeerInfo, AHostIsCrowdedWhereItsRanksShareProcessors) {
  const PeerInfo one = info("a");
  const cpu_set_t cpus = cpus_of(one);
  const std::vector<PeerInfo> fit(CPU_COUNT(&cpus), one);
  EXPECT_FALSE(is_oversubscribed(fit, 0));
  std::vector<PeerInfo> more = fit;
  more.push_back(info("b"));
  EXPECT_FALSE(is_oversubscribed(more, 0));
  more.push_back(one);
  EXPECT_TRUE(is_oversubscribed(more, 0));
}

}  // namespace
}  // namespace plait::comm::tcp
