// How a rank that still connects tells that the group has failed, and hears it.
#include "comm/control/failure_frame.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "comm/control/frame.h"

namespace plait::comm::tcp {
namespace {

class FailureFrameTest : public testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends = {};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    mine = base::Fd(ends[0]);
    theirs = base::Fd(ends[1]);
  }

  void send(const std::string& bytes) const {
    ASSERT_EQ(::send(mine.get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }
  void send_frame(Kind kind, const std::string& text) const {
    const Frame frame = {.kind = kind, .receiver = 1, .bytes = text.size()};
    send({reinterpret_cast<const char*>(&frame), sizeof(frame)});
    if (!text.empty()) send(text);
  }

  base::Fd mine;
  base::Fd theirs;
};

const Failure kFailure = {
    .code = Code::peer_lost, .culprit = 2, .sentence = "rank 2 was interrupted"};

TEST_F(FailureFrameTest, IsFoundBehindOtherFrames) {
  EXPECT_FALSE(find_failure(theirs));
  send_frame(Kind::gather, "what a rank brings");
  send_frame(Kind::question, "");
  EXPECT_FALSE(find_failure(theirs));
  send_failure(mine, kFailure);
  mine.reset();
  for (int turn = 0; turn < 2; ++turn) {  // all stays where it is
    const auto found = find_failure(theirs);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->code, kFailure.code);
    EXPECT_EQ(found->culprit, kFailure.culprit);
    EXPECT_EQ(found->sentence, kFailure.sentence);
  }
}

// A rank whose group is complete leaves the record to a rank that may still connect to others.
TEST_F(FailureFrameTest, MayBeAReport) {
  send_frame(Kind::report, write(kFailure));
  const auto found = find_failure(theirs);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->sentence, kFailure.sentence);
}

TEST_F(FailureFrameTest, IsNotFoundInNonsense) {
  send_frame(Kind::failure, "no number");
  EXPECT_FALSE(find_failure(theirs));
  mine.reset();
  EXPECT_FALSE(find_failure(theirs));
  SetUp();
  send(std::string(1000, 'x'));
  send_failure(mine, kFailure);
  EXPECT_FALSE(find_failure(theirs));
}

TEST_F(FailureFrameTest, IsNotFoundBeforeItIsWhole) {
  const std::string text = write(kFailure);
  const Frame frame = {.kind = Kind::failure, .receiver = 1, .bytes = text.size()};
  send({reinterpret_cast<const char*>(&frame), sizeof(frame)});
  send(text.substr(0, 5));
  EXPECT_FALSE(find_failure(theirs));
  send(text.substr(5));
  EXPECT_TRUE(find_failure(theirs));
}

}  // namespace
}  // namespace plait::comm::tcp
