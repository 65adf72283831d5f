#include "base/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/region.h"
#include "base/sanitized.h"
#include "plait/error.h"
#include "tensor/sentence_of.h"

namespace plait::base {
namespace {

std::string fresh_name() {
  static int count = 0;
  return "plait-socket-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

struct Line {
  Fd here, there;
};

Line make_line() {
  const std::string name = fresh_name();
  const auto listener = listen_at(name);
  auto here = connect_to(name);
  auto there = accept_from(*listener);
  return {.here = std::move(*here), .there = std::move(*there)};
}

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

TEST(Socket, NobodyListensBeforeAndAfter) {
  const std::string name = fresh_name();
  EXPECT_FALSE(connect_to(name).has_value());
  {
    const auto listener = listen_at(name);
    ASSERT_TRUE(listener.has_value());
    EXPECT_FALSE(listen_at(name).has_value());
    EXPECT_FALSE(accept_from(*listener).has_value());
    EXPECT_TRUE(connect_to(name).has_value());
  }
  EXPECT_FALSE(connect_to(name).has_value());
  EXPECT_TRUE(listen_at(name).has_value());
}

TEST(Socket, RefusesANameThatDoesNotFit) {
  EXPECT_TRUE(listen_at(std::string(107, 'x')).has_value());
  EXPECT_EQ(sentence_of([] { listen_at(std::string(108, 'x')); }),
            "the socket name \"" + std::string(108, 'x') + "\" is too long");
}

TEST(Socket, SaysWhoIsOnTheOtherSide) {
  const Line line = make_line();
  for (const Fd* side : {&line.here, &line.there}) {
    EXPECT_EQ(credentials_of(*side).pid, ::getpid());
    EXPECT_EQ(credentials_of(*side).uid, ::geteuid());
  }
}

TEST(Socket, KeepsMessagesWholeAndInOrder) {
  const Line line = make_line();
  const std::vector<std::string> sent = {"a", std::string(kLongestMessage, 'b'), "c"};
  for (const std::string& bytes : sent) {
    EXPECT_EQ(send_message(line.here, bytes, Fd()), Delivery::done);
  }
  for (const std::string& bytes : sent) {
    Message message;
    EXPECT_EQ(receive_message(line.there, message), Delivery::done);
    EXPECT_EQ(message.bytes, bytes);
    EXPECT_FALSE(message.fd);
  }
  Message none;
  EXPECT_EQ(receive_message(line.there, none), Delivery::not_yet);
  EXPECT_THROW(send_message(line.here, std::string(kLongestMessage + 1, 'd'), Fd()), Error);
}

TEST(Socket, SaysWhenThereIsNoRoom) {
  const Line line = make_line();
  int sent = 0;
  while (send_message(line.here, std::string(1000, 'x'), Fd()) == Delivery::done) ++sent;
  EXPECT_EQ(send_message(line.here, "x", Fd()), Delivery::not_yet);
  Message message;
  for (int i = 0; i < sent; ++i) ASSERT_EQ(receive_message(line.there, message), Delivery::done);
  EXPECT_EQ(send_message(line.here, "x", Fd()), Delivery::done);
}

TEST(Socket, CarriesADescriptor) {
  const Line line = make_line();
  const Fd file = make_anonymous_file("test", 4096);
  ASSERT_EQ(send_message(line.here, "take this", file), Delivery::done);
  Message message;
  ASSERT_EQ(receive_message(line.there, message), Delivery::done);
  ASSERT_TRUE(message.fd);
  EXPECT_NE(message.fd.get(), file.get());
  EXPECT_NE(::fcntl(message.fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  struct stat ours = {};
  struct stat theirs = {};
  ::fstat(file.get(), &ours);
  ::fstat(message.fd.get(), &theirs);
  EXPECT_EQ(ours.st_ino, theirs.st_ino);
}

// Sends a message with `count` descriptors, which plait never does.
void send_descriptors(const Fd& socket, int count) {
  std::vector<int> fds(count, socket.get());
  std::vector<char> control(CMSG_SPACE(count * sizeof(int)));
  char byte = 'x';
  iovec part = {.iov_base = &byte, .iov_len = 1};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(count * sizeof(int));
  std::memcpy(CMSG_DATA(header), fds.data(), count * sizeof(int));
  ASSERT_EQ(::sendmsg(socket.get(), &message, 0), 1);
}

TEST(Socket, KeepsNoDescriptorThatItDoesNotKnowOf) {
  const Line line = make_line();
  const int before = open_descriptors();
  for (const int count : {1, 2, 3, 100}) {
    send_descriptors(line.here, count);
    Message message;
    ASSERT_EQ(receive_message(line.there, message), Delivery::done);
    EXPECT_TRUE(message.fd);
    message.fd.reset();
    EXPECT_EQ(open_descriptors(), before) << "after " << count;
  }
}

TEST(Socket, HearsTheEnd) {
  Line line = make_line();
  send_message(line.here, "last words", Fd());
  line.here.reset();
  Message message;
  EXPECT_EQ(receive_message(line.there, message), Delivery::done);
  EXPECT_EQ(message.bytes, "last words");
  EXPECT_EQ(receive_message(line.there, message), Delivery::closed);
  EXPECT_EQ(send_message(line.there, "too late", Fd()), Delivery::closed);
}

TEST(Socket, HearsLastWordsOfOneWhoDidNotListen) {
  Line line = make_line();
  send_message(line.there, "never read", Fd());
  send_message(line.here, "last words", Fd());
  line.here.reset();
  Message message;
  EXPECT_EQ(receive_message(line.there, message), Delivery::done);
  EXPECT_EQ(message.bytes, "last words");
  EXPECT_EQ(receive_message(line.there, message), Delivery::closed);
}

TEST(Socket, HearsLastWordsThatComeWhileItLooks) {
  std::atomic<int> next{-1};
  std::atomic<bool> done{false};
  std::jthread other([&] {
    while (!done) {
      const Fd end(next.exchange(-1));
      if (end) {
        send_message(end, "last words", Fd());
      } else {
        std::this_thread::yield();
      }
    }
  });
  constexpr int kTries = kIsSlow ? 400 : 4000;
  int heard = 0;
  for (int i = 0; i < kTries; ++i) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) break;
    const Fd here(ends[0]);
    next = ends[1];
    Message message;
    Delivery delivery = Delivery::not_yet;
    while (delivery == Delivery::not_yet) delivery = receive_message(here, message);
    heard += delivery == Delivery::done ? 1 : 0;
  }
  done = true;
  other.join();
  EXPECT_EQ(heard, kTries);
}

TEST(Socket, WaitsAreBounded) {
  const Line line = make_line();
  wait_readable({&line.here, &line.there}, kMillisecond);
  wait_readable({&line.here}, -kSecond);
  send_message(line.here, "x", Fd());
  // returns at once; otherwise the test's deadline passes
  wait_readable({&line.there}, 20 * kSecond);
  wait_writable(line.here, 20 * kSecond);
}

}  // namespace
}  // namespace plait::base
