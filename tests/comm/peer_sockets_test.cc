// Messages between rank 0 and the others while all meet.
#include "comm/meet/peer_sockets.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <utility>

#include "comm/control/failure_frame.h"

namespace plait::comm::tcp {
namespace {

class LinesTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int rank = 1; rank < lines.world(); ++rank) {
      std::array<int, 2> ends = {};
      ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()),
                0);
      lines.set(rank, base::Fd(ends[0]), PeerSockets::Says::words);
      theirs.at(rank) = base::Fd(ends[1]);
    }
  }

  std::optional<Message> receive(int rank) {
    bool is_open = true;
    return read_message(theirs.at(rank), heard.at(rank), kMostWelcomeBytes, is_open);
  }

  PeerSockets lines = PeerSockets(3);
  std::array<base::Fd, 3> theirs;
  std::array<std::string, 3> heard;
};

TEST_F(LinesTest, SayWordsToAllButOne) {
  lines.send_words(MessageKind::mismatch, "why", 1);
  EXPECT_FALSE(receive(1));
  const auto message = receive(2);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->kind, MessageKind::mismatch);
  EXPECT_EQ(message->text, "why");
}

TEST_F(LinesTest, SayFramesOnlyBehindAWholeMessage) {
  const Failure failure = {.code = Code::peer_lost, .culprit = 0, .sentence = "rank 0 is lost"};
  lines.send_frames(failure);  // both ranks still listen to words
  const std::string brief = message_of(MessageKind::welcome, "all have come");
  const std::string longer = message_of(MessageKind::welcome, std::string(8 << 20, 'x'));
  int turns = 0;
  const auto late =
      lines.send([&](int rank) -> const std::string& { return rank == 1 ? brief : longer; },
                 base::now() + 100 * base::kMillisecond, [&] { ++turns; });
  EXPECT_EQ(late, std::vector<int>{2});  // which reads nothing, and holds up no other
  EXPECT_GT(turns, 0);
  lines.send_frames(failure);
  lines.send_words(MessageKind::mismatch, "why", -1);
  const auto welcome = receive(1);
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->text, "all have come");
  EXPECT_TRUE(find_failure(theirs[1]));
  // Nothing was said in the midst of the other's welcome.
  std::string rest(longer.size(), '\0');
  std::size_t had = 0;
  for (ssize_t got = 1; got > 0; had += got > 0 ? got : 0)
    got = ::recv(theirs[2].get(), rest.data() + had, rest.size() - had, 0);
  EXPECT_LT(had, longer.size());
  EXPECT_EQ(rest.substr(0, had), longer.substr(0, had));
}

TEST_F(LinesTest, HearOfAnInterruptionWhenItsMessageIsWhole) {
  const std::string message = message_of(MessageKind::interrupted, "2 rank 2 was interrupted");
  const auto send = [&](const std::string& bytes) {
    ASSERT_EQ(::send(theirs[2].get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  };
  std::vector<std::pair<int, std::string>> told;
  const auto receive_all = [&] {
    lines.receive_words([&](int rank, const Message& said) {
      EXPECT_EQ(said.kind, MessageKind::interrupted);
      told.emplace_back(rank, said.text);
    });
  };
  receive_all();
  send(message.substr(0, 6));
  receive_all();
  EXPECT_TRUE(told.empty());
  send(message.substr(6));
  for (int turn = 0; turn < 2; ++turn) receive_all();
  EXPECT_EQ(told, (std::vector<std::pair<int, std::string>>{{2, "2 rank 2 was interrupted"}}));
}

TEST_F(LinesTest, BelongToTheMeshInTheEnd) {
  lines.drop(1);
  const auto sockets = lines.take_all();
  ASSERT_EQ(sockets.size(), 3U);
  EXPECT_FALSE(sockets[0]);
  EXPECT_FALSE(sockets[1]);
  EXPECT_TRUE(sockets[2]);
}

}  // namespace
}  // namespace plait::comm::tcp
