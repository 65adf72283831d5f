#include "comm/meet/group_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace plait::comm::shm {
namespace {

using base::Delivery;
using base::Fd;

// The channels of a group of three ranks, all in this process.
std::vector<GroupChannel> make_three() {
  std::vector<Fd> to_others(3);
  std::vector<std::vector<Fd>> to_rank_0(3);
  for (int rank = 1; rank < 3; ++rank) {
    std::array<int, 2> ends = {};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()),
              0);
    to_others[rank] = Fd(ends[0]);
    to_rank_0[rank].emplace_back(ends[1]);
  }
  std::vector<GroupChannel> channels;
  channels.emplace_back(std::move(to_others), 3);
  for (int rank = 1; rank < 3; ++rank) channels.emplace_back(std::move(to_rank_0[rank]), 3);
  return channels;
}

std::string receive(const GroupChannel& channel, int from) {
  base::Message message;
  const Delivery delivery = channel.receive(from, message);
  if (delivery == Delivery::closed) return "closed";
  return delivery == Delivery::not_yet ? "nothing yet" : message.bytes;
}

TEST(GroupChannel, NamesPeersByTheirRanks) {
  const auto all = make_three();
  for (const GroupChannel& one : all) EXPECT_EQ(one.coordinator(), 0);
  all[0].send(2, "to two", Fd());
  all[1].send(0, "from one", Fd());
  EXPECT_EQ(receive(all[2], 0), "to two");
  EXPECT_EQ(receive(all[1], 0), "nothing yet");
  EXPECT_EQ(receive(all[0], 1), "from one");
  EXPECT_EQ(receive(all[0], 2), "nothing yet");
}

TEST(GroupChannel, NamesThemByTheirRanksInASubGroup) {
  const auto all = make_three();
  const Connections::Channel number = all[0].make_number();
  const std::vector<int> members = {2, 0};
  const GroupChannel coordinators = all[0].among(members, number);
  const GroupChannel others = all[2].among(members, number);
  EXPECT_EQ(coordinators.coordinator(), 1);
  EXPECT_EQ(others.coordinator(), 1);
  all[0].send(2, "parent", Fd());
  coordinators.send(0, "sub-group", Fd());
  others.wait_readable({1}, 60 * base::kSecond);
  EXPECT_EQ(receive(others, 1), "sub-group");
  EXPECT_EQ(receive(all[2], 0), "parent");
}

TEST(GroupChannel, ClosesForThePeersThatAreNamed) {
  const auto all = make_three();
  all[0].close({2});
  EXPECT_EQ(receive(all[2], 0), "closed");
  EXPECT_EQ(receive(all[1], 0), "nothing yet");
}

}  // namespace
}  // namespace plait::comm::shm
