// How groups share sockets (src/comm/meet/connections.h).
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <memory>

#include "comm/meet/connections.h"

namespace plait::comm::shm {
namespace {

using base::Delivery;
using base::Fd;
using base::Message;

class ConnectionsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends = {};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()),
              0);
    // Rank 0 has a line to rank 1 under its number, and rank 1 has line 0.
    std::vector<Fd> lines(2);
    lines[1] = Fd(ends[0]);
    coordinator_ = std::make_unique<Connections>(std::move(lines));
    std::vector<Fd> line;
    line.emplace_back(ends[1]);
    other_ = std::make_unique<Connections>(std::move(line));
  }

  Delivery announce(Connections::Channel channel, const std::string& bytes) {
    return coordinator_->send(channel, 1, bytes, Fd());
  }
  std::string receive(Connections::Channel channel) {
    Message message;
    const Delivery delivery = other_->receive(channel, 0, message);
    if (delivery == Delivery::closed) return "closed";
    return delivery == Delivery::not_yet ? "nothing yet" : message.bytes;
  }

  std::unique_ptr<Connections> coordinator_;
  std::unique_ptr<Connections> other_;
};

TEST_F(ConnectionsTest, KeepTheMessagesOfEachChannelInOrder) {
  const auto channel = coordinator_->make_channel();
  EXPECT_NE(channel, Connections::kFirst);
  EXPECT_EQ(receive(channel), "nothing yet");
  announce(channel, "a");
  announce(Connections::kFirst, "b");
  announce(channel, "c");
  EXPECT_EQ(receive(Connections::kFirst), "b");
  EXPECT_EQ(receive(channel), "a");
  EXPECT_EQ(receive(channel), "c");
  EXPECT_EQ(receive(channel), "nothing yet");
}

TEST_F(ConnectionsTest, CloseAChannelAfterItsLastMessage) {
  const auto channel = coordinator_->make_channel();
  announce(channel, "last");
  coordinator_->close(channel, {1});
  announce(Connections::kFirst, "still here");
  EXPECT_EQ(receive(channel), "last");
  EXPECT_EQ(receive(channel), "closed");
  EXPECT_EQ(receive(Connections::kFirst), "still here");
}

TEST_F(ConnectionsTest, SendNothingToASideThatHasClosed) {
  const auto channel = coordinator_->make_channel();
  other_->close(channel, {0});
  Message message;
  EXPECT_EQ(coordinator_->receive(channel, 1, message), Delivery::closed);
  EXPECT_EQ(announce(channel, "too late"), Delivery::closed);
}

// Messages that had been on their way are dropped, and other channels don't miss them.
TEST_F(ConnectionsTest, DropWhatComesForAClosedChannel) {
  for (int round = 0; round < 1000; ++round) {
    const auto channel = coordinator_->make_channel();
    announce(channel, "on its way");
    other_->close(channel, {0});
    announce(Connections::kFirst, std::to_string(round));
    ASSERT_EQ(receive(Connections::kFirst), std::to_string(round));
    EXPECT_EQ(receive(channel), "nothing yet");
    coordinator_->close(channel, {1});
  }
}

TEST_F(ConnectionsTest, AreClosedTogether) {
  const auto channel = coordinator_->make_channel();
  announce(channel, "before");
  coordinator_.reset();
  EXPECT_EQ(receive(Connections::kFirst), "closed");
  EXPECT_EQ(receive(channel), "before");
  EXPECT_EQ(receive(channel), "closed");
}

}  // namespace
}  // namespace plait::comm::shm
