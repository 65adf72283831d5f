// A rank's calls to another, at whose address another program may listen.
#include "comm/meet/outgoing_handshake.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <string_view>

#include "comm/tcp_ends.h"
#include "tensor/sentence_of.h"

namespace plait::comm::tcp {
namespace {

// Rank 2 calls rank 1, whose side the test plays.
class CallTest : public testing::Test {
 protected:
  // Goes on until there is a hello, which is returned; `answerer` is the listener's end.
  std::string receive_hello() {
    answerer.reset();
    await([&] {
      if (!call().has_socket()) call().begin();
      if (call().has_socket()) call().advance(self, hints);
      if (!answerer) answerer = accept_caller(listener);
      return answerer.has_value();
    });
    for (;;) {
      if (call().has_socket()) call().advance(self, hints);
      bool is_open = true;
      const auto message = read_message(*answerer, bytes, kMostHelloBytes, is_open);
      if (message) {
        bytes.clear();
        EXPECT_EQ(message->kind, MessageKind::hello);
        return message->text;
      }
    }
  }

  // Goes on until the call has its welcome, or has hung up.
  std::optional<std::string> end_of_call() {
    std::optional<std::string> welcome;
    await([&] {
      welcome = call().advance(self, hints);
      return welcome || !call().has_socket();
    });
    return welcome;
  }

  // Calls again and again until the host has refused as often as counts.
  void await_refusals() {
    await([&] {
      if (call().has_socket()) {
        call().advance(self, hints);
      } else {
        call().begin();
      }
      return call().is_refused();
    });
  }

  OutgoingHandshake& call(OutgoingHandshake::At at = OutgoingHandshake::At::own_address) {
    if (!call_) call_.emplace(1, loopback(listener), at);
    return *call_;
  }

  const base::Fd kept = keep_port();
  base::Fd listener = listen_at_port(port_of(kept));
  std::optional<base::Fd> answerer;
  std::string bytes;
  Identity self = rank_of_three(2);
  TimeoutHints hints;

 private:
  std::optional<OutgoingHandshake> call_;
};

TEST_F(CallTest, IsOverWithAWelcome) {
  const auto hello = read_hello(receive_hello());
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->rank, 2);
  EXPECT_EQ(hello->to, 1);
  EXPECT_FALSE(call().is_over());
  send_message(*answerer, MessageKind::welcome, "come in");
  EXPECT_EQ(end_of_call(), "come in");
  EXPECT_TRUE(call().is_over());
  EXPECT_TRUE(call().take_socket());
}

TEST_F(CallTest, BelievesAWelcomeOnlyOfWhatKnowsTheSecret) {
  self = rank_of_three(2, "a secret");
  receive_hello();
  send_message(*answerer, MessageKind::welcome, "come in");
  EXPECT_EQ(end_of_call(), std::nullopt);
  EXPECT_FALSE(call().is_over());
  EXPECT_EQ(hints.about({1}),
            "rank 2 called 127.0.0.1: what answers there does not know the secret of rank 2: "
            "PLAIT_SECRET must be the same for all ranks");

  // The rank itself answers the next call.
  const std::string hello = receive_hello();
  const std::string nonce = "0123456789abcdef0123456789abcdef";
  const Proofs proofs = prove("a secret", hello, nonce);
  send_message(*answerer, MessageKind::challenge,
               write(Challenge{.nonce = nonce, .proof = proofs.listener}));
  send_message(*answerer, MessageKind::welcome, "come in");
  EXPECT_EQ(end_of_call(), "come in");
  EXPECT_EQ(next_message(*answerer).text, proofs.caller);
}

TEST_F(CallTest, HangsUpOnAWrongProof) {
  self = rank_of_three(2, "a secret");
  const std::string hello = receive_hello();
  const std::string nonce = "0123456789abcdef0123456789abcdef";
  const Proofs proofs = prove("another secret", hello, nonce);
  send_message(*answerer, MessageKind::challenge,
               write(Challenge{.nonce = nonce, .proof = proofs.listener}));
  EXPECT_EQ(end_of_call(), std::nullopt);
  EXPECT_EQ(next_message(*answerer).kind, MessageKind::refusal);
  EXPECT_NE(hints.about({1}), "");
}

// An address that several hosts have may lead to another rank.
TEST_F(CallTest, IsMadeAgainAfterARefusal) {
  receive_hello();
  send_message(*answerer, MessageKind::refusal, "here is rank 5");
  EXPECT_EQ(end_of_call(), std::nullopt);
  receive_hello();
  send_message(*answerer, MessageKind::welcome, "");
  EXPECT_EQ(end_of_call(), "");
}

TEST_F(CallTest, FailsWithARefusalAtTheRendezvous) {
  call(OutgoingHandshake::At::rendezvous);
  receive_hello();
  send_message(*answerer, MessageKind::refusal, "here is rank 5");
  EXPECT_EQ(sentence_of([&] { end_of_call(); }),
            "rank 2 called 127.0.0.1 to meet rank 1: here is rank 5");
}

TEST_F(CallTest, IsRefusedWhereNoProcessListens) {
  call();
  receive_hello();
  EXPECT_FALSE(call().is_refused());
  answerer.reset();
  listener.reset();
  await_refusals();
  EXPECT_FALSE(call().is_over());
}

// Unlike rank 0, a web server answers at once.
TEST_F(CallTest, TellsHowTheLastTryEnded) {
  call(OutgoingHandshake::At::rendezvous);
  EXPECT_EQ(call().outcome(), "");
  receive_hello();
  EXPECT_EQ(call().outcome(), "the last call, to 127.0.0.1: it was accepted and has no answer");
  constexpr std::string_view kAnswer = "HTTP/1.1 400 Bad Request\r\n\r\n";
  ASSERT_GT(::send(answerer->get(), kAnswer.data(), kAnswer.size(), 0), 0);
  EXPECT_EQ(end_of_call(), std::nullopt);
  EXPECT_EQ(call().outcome(), "the last call, to 127.0.0.1: the answer is not that of a rank");

  receive_hello();
  answerer.reset();
  EXPECT_EQ(end_of_call(), std::nullopt);
  EXPECT_EQ(call().outcome(), "the last call, to 127.0.0.1: it was accepted and then closed");

  listener.reset();
  await_refusals();
  EXPECT_EQ(call().outcome(),
            "the last call, to 127.0.0.1: Connection refused, after one had been accepted");
}

TEST_F(CallTest, TellsWhatTheSystemSays) {
  OutgoingHandshake nowhere(0, read_addresses("255.255.255.255", 29600),
                            OutgoingHandshake::At::rendezvous);
  nowhere.begin();
  EXPECT_FALSE(nowhere.has_socket());
  EXPECT_EQ(nowhere.outcome(), "the last call, to 255.255.255.255: Network is unreachable");
}

TEST_F(CallTest, AProbeOnlyFindsOutWhetherAProcessListens) {
  for (const bool listens : {true, false}) {
    OutgoingHandshake probe(1, loopback(listener), OutgoingHandshake::At::own_address_as_probe);
    if (!listens) listener.reset();
    await([&] {
      if (probe.has_socket()) {
        probe.advance(self, hints);
      } else {
        probe.begin();
      }
      return probe.is_over();
    });
    EXPECT_EQ(probe.is_refused(), !listens);
    EXPECT_FALSE(probe.has_socket());
    if (!listens) continue;
    await([&] {
      answerer = accept_caller(listener);
      return answerer.has_value();
    });
    EXPECT_EQ(next_message(*answerer).text, "nothing came");
  }
}

TEST_F(CallTest, FailsWhereTheRankRunsAnotherBuild) {
  receive_hello();
  send_message(*answerer, MessageKind::mismatch, "another build");
  EXPECT_EQ(sentence_of([&] { end_of_call(); }, Code::mismatch), "another build");
}

}  // namespace
}  // namespace plait::comm::tcp
