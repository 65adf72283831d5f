// The reasons that a connection gives if it can't go on.
#include "comm/control/connection.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <vector>

namespace plait::comm::tcp {
namespace {

// The kernel tells it once, to the call that sends: a socket for whole messages refuses a long one.
TEST(Connection, EndsByWhatSendingItRefused) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()),
            0);
  const base::Fd other(ends[1]);
  Connection connection(1, base::Fd(ends[0]));
  const std::vector<std::byte> payload(std::size_t{64} << 20);
  connection.queue({.kind = Kind::chunk, .receiver = 0, .bytes = payload.size()}, payload.data(),
                   nullptr);
  EXPECT_TRUE(connection.is_open());
  connection.flush();
  EXPECT_EQ(connection.loss(), "Message too long");
  EXPECT_FALSE(connection.is_closed_by_peer());
  EXPECT_TRUE(connection.is_delivered());
}

}  // namespace
}  // namespace plait::comm::tcp
