// A rank's handling of its callers, among which there may be other programs.
#include "comm/meet/incoming_handshakes.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "comm/tcp_ends.h"

namespace plait::comm::tcp {
namespace {

constexpr const char* kNonce = "0123456789abcdef0123456789abcdef";

// Rank 0, and a socket that has called it.
class CallersTest : public testing::Test {
 protected:
  void SetUp() override {
    await([&] {
      int error = 0;
      if (!caller) caller = begin_to_connect(loopback(listener).at(0), error);
      return caller && progress_of(*caller) == 0;
    });
  }

  static Hello hello(const Identity& from) {
    return {.job = from.job,
            .rank = from.rank,
            .to = 0,
            .world = from.world,
            .has_secret = from.has_secret(),
            .nonce = kNonce,
            .info = from.info};
  }

  // Listens until the caller is admitted, or is gone.
  void listen() {
    await([&] {
      callers.accept(listener);
      const bool was_there = !callers.are_none();
      callers.receive(self, hints, [&](base::Fd& socket, const Hello& from) {
        admitted = from.rank;
        admitted_socket = std::move(socket);
      });
      return was_there && callers.are_none();
    });
  }

  // Listens until the caller has been challenged.
  void listen_once() {
    await([&] {
      callers.accept(listener);
      callers.receive(self, hints,
                      [&](base::Fd& /*socket*/, const Hello& from) { admitted = from.rank; });
      return !callers.are_none();
    });
    for (int turn = 0; turn < 100; ++turn) {
      callers.receive(self, hints,
                      [&](base::Fd& /*socket*/, const Hello& from) { admitted = from.rank; });
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // The caller and this rank both learn why it is no rank of this start.
  void expect_difference(const Hello& from, const std::string& why) {
    send_message(*caller, MessageKind::hello, write(from));
    listen();
    EXPECT_FALSE(admitted);
    const Message message = next_message(*caller);
    EXPECT_EQ(message.kind, MessageKind::refusal);
    EXPECT_EQ(message.text, why);
    EXPECT_EQ(hints.about({1, 2}), why);
  }

  base::Fd listener = listen_at_port(0);
  std::optional<base::Fd> caller;
  Identity self = rank_of_three(0);
  IncomingHandshakes callers{3};
  TimeoutHints hints;
  std::optional<int> admitted;
  base::Fd admitted_socket;
};

TEST_F(CallersTest, AreAdmittedAtOnceWhereThereIsNoSecret) {
  send_message(*caller, MessageKind::hello, write(hello(rank_of_three(2))));
  listen();
  EXPECT_EQ(admitted, 2);
  EXPECT_TRUE(admitted_socket);
  EXPECT_EQ(hints.about({1, 2}), "");
}

TEST_F(CallersTest, AreAdmittedOnceTheyHaveProvedTheSecret) {
  self = rank_of_three(0, "a secret");
  const std::string text = write(hello(rank_of_three(2, "a secret")));
  send_message(*caller, MessageKind::hello, text);
  listen_once();
  EXPECT_FALSE(admitted);
  const auto challenge = read_challenge(next_message(*caller).text);
  ASSERT_TRUE(challenge);
  const Proofs proofs = prove("a secret", text, challenge->nonce);
  EXPECT_EQ(challenge->proof, proofs.listener);
  send_message(*caller, MessageKind::proof, proofs.caller);
  listen();
  EXPECT_EQ(admitted, 2);
}

TEST_F(CallersTest, ThatDoNotKnowTheSecretAreDroppedAndDoubted) {
  self = rank_of_three(0, "a secret");
  const std::string text = write(hello(rank_of_three(2, "another")));
  send_message(*caller, MessageKind::hello, text);
  listen_once();
  const auto challenge = read_challenge(next_message(*caller).text);
  ASSERT_TRUE(challenge);
  send_message(*caller, MessageKind::proof, prove("another", text, challenge->nonce).caller);
  listen();
  EXPECT_FALSE(admitted);
  EXPECT_EQ(hints.about({1}), "");
  EXPECT_EQ(hints.about({1, 2}),
            "a caller from 127.0.0.1 said that it was rank 2 and did not know the secret of rank "
            "0: PLAIT_SECRET must be the same for all ranks");
}

TEST_F(CallersTest, OfAnotherJobAreToldSo) {
  Identity other = rank_of_three(2);
  other.job = "torchrun/node1/29500/job/1";
  expect_difference(hello(other),
                    R"(rank 2 is of the job "torchrun/node1/29500/job/1", rank 0 of "a job": )"
                    "launcher, job and restart must be the same for all ranks");
}

TEST_F(CallersTest, OfAnotherWorldAreToldSo) {
  Identity other = rank_of_three(2);
  other.world = 4;
  expect_difference(hello(other), "rank 2 was started in a world of 4, rank 0 in one of 3");
}

TEST_F(CallersTest, ThatHaveASecretWhereThereIsNoneAreToldSo) {
  expect_difference(
      hello(rank_of_three(2, "a secret")),
      "rank 2 has set PLAIT_SECRET, rank 0 has not: it must be the same for all ranks");
}

TEST_F(CallersTest, ThatHaveNoSecretWhereThereIsOneAreToldSo) {
  self = rank_of_three(0, "a secret");
  expect_difference(
      hello(rank_of_three(2)),
      "rank 2 has not set PLAIT_SECRET, rank 0 has: it must be the same for all ranks");
}

// The address of a rank may lead to another one.
TEST_F(CallersTest, OfAnotherRankAreToldWhichOneIsHere) {
  Hello to_another = hello(rank_of_three(2));
  to_another.to = 1;
  send_message(*caller, MessageKind::hello, write(to_another));
  listen();
  EXPECT_FALSE(admitted);
  const Message message = next_message(*caller);
  EXPECT_EQ(message.kind, MessageKind::refusal);
  EXPECT_EQ(message.text, "here is rank 0 of 3");
  EXPECT_EQ(hints.about({1, 2}), "");
}

TEST_F(CallersTest, OfAnotherBuildMayBeAnyRank) {
  send_message(*caller, MessageKind::hello, "0.0-another and words that only it can read");
  listen();
  EXPECT_FALSE(admitted);
  EXPECT_EQ(next_message(*caller).kind, MessageKind::mismatch);
  EXPECT_NE(hints.about({1}).find("runs plait 0.0-another, rank 0 plait "), std::string::npos)
      << hints.about({1});
}

TEST_F(CallersTest, ThatSpeakAnotherLanguageAreDropped) {
  send_message(*caller, MessageKind::welcome, "");
  listen();
  EXPECT_FALSE(admitted);
  EXPECT_EQ(hints.about({1, 2}), "");
}

}  // namespace
}  // namespace plait::comm::tcp
