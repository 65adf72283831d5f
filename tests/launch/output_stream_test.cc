#include "launch/output_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <csignal>

#include "folder.h"
#include "launch/pipes.h"

namespace plait::launch {
namespace {

constexpr base::Nanoseconds kLong = 60 * base::kSecond;

TEST(OutputStream, WritesAsMuchAsTheReaderTakes) {
  const Pipe pipe;
  OutputStream stream(pipe.writer.get());
  std::string text;
  for (int i = 0; text.size() < 300'000; ++i) text += std::to_string(i) + '\n';
  stream.queue() = text;
  stream.write_some();  // returns although a pipe has room for less
  EXPECT_TRUE(stream.pending());
  std::string got;
  while (stream.pending()) {
    got += pipe.take();
    stream.write_some();
  }
  got += pipe.take();
  EXPECT_EQ(got, text);
  EXPECT_TRUE(stream.queue().empty());
}

TEST(OutputStream, LeavesTheFlagsOfThePipeAlone) {
  const Pipe pipe;
  OutputStream stream(pipe.writer.get());
  stream.queue() = "text";
  stream.write_some();
  EXPECT_EQ(::fcntl(pipe.writer.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(pipe.take(), "text");
}

TEST(OutputStream, IsFullBeyondAMebibyte) {
  const Pipe pipe;
  OutputStream stream(pipe.writer.get());
  stream.queue().assign(std::size_t{1} << 20, 'x');
  EXPECT_FALSE(stream.full());
  stream.queue() += 'x';
  EXPECT_TRUE(stream.full());
  stream.drop();
  EXPECT_FALSE(stream.full());
  EXPECT_FALSE(stream.pending());
}

TEST(OutputStream, GivesUpOnAReaderThatReadsNothing) {
  const Pipe pipe;
  OutputStream stream(pipe.writer.get());
  stream.queue().assign(1'000'000, 'x');
  const base::Nanoseconds begin = base::now();
  stream.write_within(20 * base::kMillisecond);
  EXPECT_LT(base::now() - begin, kLong);
  EXPECT_TRUE(stream.pending());
  EXPECT_FALSE(stream.broken());
}

TEST(OutputStream, DropsEverythingWhenTheReaderIsGone) {
  ::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  OutputStream stream(pipe.writer.get());
  pipe.reader.reset();
  stream.queue() = "text";
  stream.write_within(kLong);
  EXPECT_TRUE(stream.broken());
  EXPECT_TRUE(stream.reader_is_gone());
  EXPECT_EQ(stream.take_failure(), "") << "the ranks notice it themselves";
  EXPECT_FALSE(stream.pending());
  ::signal(SIGPIPE, SIG_DFL);
}

// A file is not opened again, because it would be written from its beginning.
TEST(OutputStream, AppendsToAFile) {
  const test::Folder folder;
  const base::Fd file(::open((folder / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::write(file.get(), "before ", 7), 7);
  OutputStream stream(file.get());
  EXPECT_EQ(stream.fd(), file.get());
  stream.queue() = "after";
  stream.write_some();
  EXPECT_EQ(test::slurp(folder / "out"), "before after");
}

TEST(OutputStream, DoesNotWaitForASocketEither) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  base::Fd reader(ends[0]);
  const base::Fd writer(ends[1]);
  OutputStream stream(writer.get());
  stream.queue().assign(10'000'000, 'x');
  stream.write_some();
  EXPECT_TRUE(stream.pending());
  reader.reset();
  stream.write_some();  // and no SIGPIPE
  EXPECT_TRUE(stream.broken());
}

}  // namespace
}  // namespace plait::launch
