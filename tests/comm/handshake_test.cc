// What ranks over TCP say before their first frame.
#include "comm/tcp/handshake.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

namespace plait::comm::tcp {
namespace {

struct Pair {
  base::Fd near;
  base::Fd far;

  Pair() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    near = base::Fd(ends[0]);
    far = base::Fd(ends[1]);
  }
};

Hello hello() {
  return {.job = "a job", .rank = 2, .to = 1, .world = 3, .card = card_of_this_process(29600)};
}

TEST(Handshake, AHelloComesBackAsItWasWritten) {
  const auto read = read_hello(write(hello()));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->rank, 2);
  EXPECT_EQ(read->to, 1);
  EXPECT_EQ(read->card.port, "29600");
  const cpu_set_t cpus = cpus_of(read->card);
  EXPECT_GT(CPU_COUNT(&cpus), 0);
}

TEST(Handshake, WhatIsNoHelloIsNotRead) {
  const std::string good = write(hello());
  EXPECT_FALSE(read_hello(""));
  EXPECT_FALSE(read_hello(good + "\nmore"));
  EXPECT_FALSE(read_hello("job\n3\n0\n3\n" + write(hello().card)));  // a rank beyond the world
  EXPECT_FALSE(read_hello("job\n-1\n0\n3\n" + write(hello().card)));
  EXPECT_FALSE(read_hello("job\n0\n-1\n3\n" + write(hello().card)));
  EXPECT_FALSE(read_hello("job\n0\n1\n70000\n" + write(hello().card)));
  EXPECT_FALSE(read_hello("job\n0\n1\n3\na card of another kind"));
}

// Frames may follow at once, and must be left for the connection.
TEST(Handshake, AMessageIsReadAndNothingAfterIt) {
  const Pair pair;
  EXPECT_TRUE(say(pair.near, Word::welcome, "come in"));
  ASSERT_EQ(::send(pair.near.get(), "frame", 5, 0), 5);
  std::string bytes;
  bool is_open = true;
  const auto message = read_message(pair.far, bytes, kMostHelloBytes, is_open);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->word, Word::welcome);
  EXPECT_EQ(message->text, "come in");
  std::array<char, 8> rest{};
  EXPECT_EQ(::recv(pair.far.get(), rest.data(), rest.size(), MSG_DONTWAIT), 5);
}

TEST(Handshake, AMessageMayComeInPieces) {
  const Pair whole;
  EXPECT_TRUE(say(whole.near, Word::hello, "text"));
  std::array<char, 64> all{};
  const ssize_t count = ::recv(whole.far.get(), all.data(), all.size(), MSG_DONTWAIT);
  const Pair pair;
  std::string bytes;
  bool is_open = true;
  for (ssize_t i = 0; i < count; ++i) {
    EXPECT_FALSE(read_message(pair.far, bytes, kMostHelloBytes, is_open));
    ASSERT_EQ(::send(pair.near.get(), &all[static_cast<std::size_t>(i)], 1, 0), 1);
  }
  const auto message = read_message(pair.far, bytes, kMostHelloBytes, is_open);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->text, "text");
}

TEST(Handshake, NonsenseAndAnEndAreToldFromPatience) {
  for (const std::string& said : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(12, '\xff')}) {
    const Pair pair;
    ASSERT_GT(::send(pair.near.get(), said.data(), said.size(), 0), 0);
    std::string bytes;
    bool is_open = true;
    EXPECT_FALSE(read_message(pair.far, bytes, kMostHelloBytes, is_open));
    EXPECT_FALSE(is_open);
  }
  Pair pair;
  std::string bytes;
  bool is_open = true;
  EXPECT_FALSE(read_message(pair.far, bytes, kMostHelloBytes, is_open));
  EXPECT_TRUE(is_open);
  pair.near.reset();
  EXPECT_FALSE(read_message(pair.far, bytes, kMostHelloBytes, is_open));
  EXPECT_FALSE(is_open);
}

TEST(Handshake, AStrangerMayNotTalkForLong) {
  const Pair pair;
  EXPECT_TRUE(say(pair.near, Word::hello, std::string(kMostHelloBytes + 1, 'x')));
  std::string bytes;
  bool is_open = true;
  EXPECT_FALSE(read_message(pair.far, bytes, kMostHelloBytes, is_open));
  EXPECT_FALSE(is_open);
}

}  // namespace
}  // namespace plait::comm::tcp
