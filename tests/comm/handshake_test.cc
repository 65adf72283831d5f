// Messages of ranks over TCP before their first frame.
#include "comm/meet/handshake.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "base/check.h"

namespace plait::comm::tcp {
namespace {

constexpr const char* kNonce = "0123456789abcdef0123456789abcdef";

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
  return {.job = "a job",
          .rank = 2,
          .to = 1,
          .world = 3,
          .has_secret = true,
          .nonce = std::string(kNonce),
          .info = info_of_this_process(29600)};
}

TEST(Handshake, AHelloComesBackAsItWasWritten) {
  const auto read = read_hello(write(hello()));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->rank, 2);
  EXPECT_EQ(read->to, 1);
  EXPECT_TRUE(read->has_secret);
  EXPECT_EQ(read->nonce, std::string(kNonce));
  EXPECT_EQ(read->info.port, "29600");
  const cpu_set_t cpus = cpus_of(read->info);
  EXPECT_GT(CPU_COUNT(&cpus), 0);
}

TEST(Handshake, WhatIsNoHelloIsNotRead) {
  const std::string info = write(hello().info);
  const std::string nonce = kNonce;
  const auto is_read = [&](const std::string& first, const std::string& middle,
                           const std::string& last) {
    return read_hello(base::sentence(first, "\njob\n", middle, '\n', last)).has_value();
  };
  EXPECT_TRUE(is_read(info, "2\n0\n3\nopen", nonce));
  EXPECT_FALSE(is_read(info, "3\n0\n3\nopen", nonce));  // a rank beyond the world
  EXPECT_FALSE(is_read(info, "-1\n0\n3\nopen", nonce));
  EXPECT_FALSE(is_read(info, "0\n-1\n3\nopen", nonce));
  EXPECT_FALSE(is_read(info, "0\n1\n70000\nopen", nonce));
  EXPECT_FALSE(is_read(info, "2\n0\n3\nshut", nonce));
  EXPECT_FALSE(is_read(info, "2\n0\n3\nopen", nonce + "0"));
  EXPECT_FALSE(is_read(info, "2\n0\n3\nopen", "0123456789ABCDEF0123456789ABCDEF"));
  EXPECT_FALSE(is_read(info, "2\n0\n3\nopen", nonce + "\nmore"));
  EXPECT_FALSE(is_read("of another kind", "2\n0\n3\nopen", nonce));
  EXPECT_FALSE(read_hello(""));
}

TEST(Handshake, TheBuildOfAnotherLayoutCanBeRead) {
  EXPECT_EQ(build_in(write(hello())), hello().info.build);
  EXPECT_EQ(build_in("9.9.9+abc with other words"), "9.9.9+abc");
  EXPECT_EQ(build_in("oneword"), "");
  EXPECT_EQ(build_in("\x1b[31m red"), "");
  EXPECT_EQ(build_in(base::sentence(std::string(200, 'x'), " y")), "");
}

// Every part that a proof depends on, changed in turn.
TEST(Handshake, AProofIsOfNoUseElsewhere) {
  const std::string nonce = "00000000000000000000000000000001";
  const Proofs proofs = prove("key", write(hello()), nonce);
  EXPECT_EQ(proofs.caller.size(), 64);
  EXPECT_NE(proofs.caller, proofs.listener);
  EXPECT_EQ(prove("key", write(hello()), nonce).caller, proofs.caller);
  EXPECT_NE(prove("kex", write(hello()), nonce).caller, proofs.caller);
  EXPECT_NE(prove("key", write(hello()), "00000000000000000000000000000002").caller, proofs.caller);
  const auto change = [&](auto part) {
    Hello other = hello();
    part(other);
    EXPECT_NE(prove("key", write(other), nonce).caller, proofs.caller);
    EXPECT_NE(prove("key", write(other), nonce).listener, proofs.listener);
  };
  change([](Hello& other) { other.job += 'x'; });
  change([](Hello& other) { other.rank = 0; });
  change([](Hello& other) { other.to = 0; });
  change([](Hello& other) { other.world = 4; });
  change([](Hello& other) { other.nonce[0] = 'b'; });
  change([](Hello& other) { other.info.hosts += ",10.0.0.9"; });
}

TEST(Handshake, AChallengeComesBackAsItWasWritten) {
  const Challenge challenge = {.nonce = std::string(kNonce), .proof = "abc"};
  const auto read = read_challenge(write(challenge));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->nonce, challenge.nonce);
  EXPECT_EQ(read->proof, challenge.proof);
  for (const char* text : {"", "1", "short abc", "a b c"}) EXPECT_FALSE(read_challenge(text));
}

TEST(Handshake, AnUnknownCallersWordsAreFitForATerminal) {
  EXPECT_EQ(printable("here is rank 0"), "here is rank 0");
  EXPECT_EQ(printable("\x1b[2J\n\xff"), "?[2J??");
  EXPECT_EQ(printable(std::string(10000, 'x')).size(), 500);
}

// Frames may follow at once, and must be left for the connection.
TEST(Handshake, AMessageIsReadAndNothingAfterIt) {
  const Pair pair;
  EXPECT_TRUE(send_message(pair.near, MessageKind::welcome, "come in"));
  ASSERT_EQ(::send(pair.near.get(), "frame", 5, 0), 5);
  std::string bytes;
  bool is_open = true;
  const auto message = read_message(pair.far, bytes, kMostHelloBytes, is_open);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->kind, MessageKind::welcome);
  EXPECT_EQ(message->text, "come in");
  std::array<char, 8> rest{};
  EXPECT_EQ(::recv(pair.far.get(), rest.data(), rest.size(), MSG_DONTWAIT), 5);
}

TEST(Handshake, AMessageMayComeInPieces) {
  const Pair whole;
  EXPECT_TRUE(send_message(whole.near, MessageKind::hello, "text"));
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

TEST(Handshake, AnUnknownCallerMayNotTalkForLong) {
  const Pair pair;
  EXPECT_TRUE(send_message(pair.near, MessageKind::hello, std::string(kMostHelloBytes + 1, 'x')));
  std::string bytes;
  bool is_open = true;
  EXPECT_FALSE(read_message(pair.far, bytes, kMostHelloBytes, is_open));
  EXPECT_FALSE(is_open);
}

}  // namespace
}  // namespace plait::comm::tcp
