#include "comm/engines/ucx/plugin/lanes.h"

#include <gtest/gtest.h>

namespace plait::comm::ucx {
namespace {

constexpr const char* kTcp = R"(#
# UCP endpoint 
#
#               peer: <no debug data>
#  lane[0]:  1:tcp/eth0.0 md[1]  -> md[1]/tcp/sysdev[255] rma_bw#0 am am_bw#0 wireup
#
#                 am_send: 0..<egr/short>..8185..<egr/zcopy>..20553..<rndv>..(inf)
)";

constexpr const char* kTwoCards = R"(#
#  lane[0]:  3:rc_mlx5/mlx5_0:1.0 md[3]  -> md[3]/ib/sysdev[0] rma_bw#0 am am_bw#0
#  lane[1]:  7:rc_mlx5/mlx5_1:1.0 md[4]  -> md[4]/ib/sysdev[1] rma_bw#1
#  lane[2]:  7:rc_mlx5/mlx5_1:1.1 md[4]  -> md[4]/ib/sysdev[1] rma_bw#2
#  lane[3]:  1:tcp/eth0.0 md[1]  -> md[1]/tcp/sysdev[255] keepalive
#
)";

constexpr const char* kSharedMemory = R"(
#  lane[0]:  1:posix/memory.0 md[1]  -> md[1]/posix/sysdev[255] am am_bw#0 keepalive
)";

TEST(Lanes, OverTcpNothingIsFetched) {
  const Lanes lanes = read_lanes(kTcp);
  EXPECT_TRUE(lanes.has_only_tcp);
  EXPECT_FALSE(lanes.can_fetch);
  EXPECT_EQ(lanes.movers, "tcp/eth0");
}

TEST(Lanes, CardsThatFetchAreNamedOnce) {
  const Lanes lanes = read_lanes(kTwoCards);
  EXPECT_FALSE(lanes.has_only_tcp);
  EXPECT_TRUE(lanes.can_fetch);
  EXPECT_EQ(lanes.movers, "rc_mlx5/mlx5_0:1 and rc_mlx5/mlx5_1:1");
}

TEST(Lanes, WithoutALaneForItNothingIsFetched) {
  const Lanes lanes = read_lanes(kSharedMemory);
  EXPECT_FALSE(lanes.has_only_tcp);
  EXPECT_FALSE(lanes.can_fetch);
  EXPECT_EQ(lanes.movers, "posix/memory");
}

TEST(Lanes, TextOfAnotherKindHasNone) {
  for (const char* text : {"", "lane[", "lane[0]", "lane[0]: 1", "no lanes here\n"}) {
    const Lanes lanes = read_lanes(text);
    EXPECT_FALSE(lanes.has_only_tcp) << text;
    EXPECT_FALSE(lanes.can_fetch) << text;
    EXPECT_EQ(lanes.movers, "") << text;
  }
}

}  // namespace
}  // namespace plait::comm::ucx
