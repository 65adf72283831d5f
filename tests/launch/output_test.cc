#include "launch/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launch/pipes.h"

namespace plait::launch {
namespace {

void write(const base::Fd& fd, const std::string& text) {
  ASSERT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

// Does what is possible without waiting.
void serve(Output& output) {
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<pollfd> polls;
    output.add_to(polls);
    if (::poll(polls.data(), polls.size(), 0) <= 0) return;
    output.serve(polls.data());
  }
}

TEST(Output, PutsTheRankBeforeEachLine) {
  const Pipe out;
  const Pipe err;
  const Redirected to_out(STDOUT_FILENO, out.writer);
  const Redirected to_err(STDERR_FILENO, err.writer);
  Output output(/*merges=*/true);
  const auto zero = output.connect(0);
  const auto three = output.connect(3);
  write(zero[0], "be");
  write(three[0], "one\ntwo\n");
  write(three[1], "wrong\n");
  serve(output);
  write(zero[0], "gun\nlast");
  serve(output);
  EXPECT_EQ(out.take(), "[3] one\n[3] two\n[0] begun\n");
  EXPECT_EQ(err.take(), "[3] wrong\n");
  output.finish();
  serve(output);
  EXPECT_EQ(out.take(), "[0] last\n");
  EXPECT_FALSE(output.pending());
}

// A rank that could go on must not be ended by what the disk has no room for.
TEST(Output, AFullDiskIsToldOnceAndEndsNoRank) {
  const base::Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full);
  const Pipe err;
  const Redirected to_out(STDOUT_FILENO, full);
  const Redirected to_err(STDERR_FILENO, err.writer);
  Output output(/*merges=*/true);
  const auto rank = output.connect(0);
  write(rank[0], "lost\n");
  serve(output);
  EXPECT_EQ(output.take_failure(),
            "cannot write to standard output: No space left on device; what is printed from here "
            "on is lost");
  EXPECT_EQ(output.take_failure(), "");
  for (int line = 0; line < 3; ++line) {
    write(rank[0], "lost too\n");
    serve(output);
  }
  write(rank[1], "warning\n");
  serve(output);
  EXPECT_EQ(err.take(), "[0] warning\n");
  EXPECT_FALSE(output.pending());
}

TEST(Output, EndsTheLineOfARankThatHasEnded) {
  const Pipe out;
  const Pipe err;
  const Redirected to_out(STDOUT_FILENO, out.writer);
  const Redirected to_err(STDERR_FILENO, err.writer);
  Output output(/*merges=*/true);
  auto rank = output.connect(1);
  write(rank[0], "no newline");
  rank[0].reset();
  serve(output);
  EXPECT_EQ(out.take(), "[1] no newline\n");
}

// A destination that both share would otherwise get two lines in one.
TEST(Output, KeepsLinesOfBothStreamsApart) {
  const Pipe both;
  const Redirected to_out(STDOUT_FILENO, both.writer);
  const Redirected to_err(STDERR_FILENO, both.writer);
  Output output(/*merges=*/true);
  const auto rank = output.connect(0);
  write(rank[0], "half");
  write(rank[1], "whole\n");
  serve(output);
  output.say("plait run: a message");
  write(rank[0], " line\n");
  serve(output);
  EXPECT_EQ(both.take(), "[0] whole\nplait run: a message\n[0] half line\n");
}

TEST(Output, HasMessagesWithoutMergingToo) {
  const Pipe err;
  const Redirected to_err(STDERR_FILENO, err.writer);
  Output output(/*merges=*/false);
  output.say("plait run: a message");
  EXPECT_EQ(err.take(), "plait run: a message\n");
  EXPECT_FALSE(output.pending());
}

TEST(Output, LetsARankNoticeThatTheReaderIsGone) {
  ::signal(SIGPIPE, SIG_IGN);
  Pipe out;
  const Pipe err;
  const Redirected to_out(STDOUT_FILENO, out.writer);
  const Redirected to_err(STDERR_FILENO, err.writer);
  Output output(/*merges=*/true);
  const auto rank = output.connect(0);
  out.reader.reset();
  write(rank[0], "line\n");
  serve(output);
  EXPECT_EQ(::write(rank[0].get(), "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_EQ(::write(rank[1].get(), "x", 1), 1);
  ::signal(SIGPIPE, SIG_DFL);
}

TEST(Output, StopsReadingWhileTheReaderIsStuck) {
  const Pipe out;
  const Pipe err;
  const Redirected to_out(STDOUT_FILENO, out.writer);
  const Redirected to_err(STDERR_FILENO, err.writer);
  Output output(/*merges=*/true);
  const auto rank = output.connect(0);
  ::fcntl(rank[0].get(), F_SETFL, O_NONBLOCK);
  const std::string lines(4096, '\n');
  std::size_t written = 0;
  for (ssize_t sent = 1; sent > 0 && written < (std::size_t{64} << 20);) {
    sent = ::write(rank[0].get(), lines.data(), lines.size());
    if (sent > 0) written += static_cast<std::size_t>(sent);
    serve(output);
  }
  EXPECT_LT(written, std::size_t{64} << 20);
  EXPECT_TRUE(output.pending());
  output.drop();
  EXPECT_FALSE(output.pending());
}

}  // namespace
}  // namespace plait::launch
