// Messages of ranks that meet: about failures, and about ranks that don't come.
#include "comm/meet/roster.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/control/failure_frame.h"
#include "comm/environment.h"
#include "comm/tcp_ends.h"
#include "conformance/ranks.h"

namespace plait::comm::tcp {
namespace {

constexpr base::Nanoseconds kTimeout = 12 * base::kSecond;
const Rendezvous kRendezvous = {.host = "node1", .port = 29600};

class ArrivalsTest : public testing::Test {
 protected:
  ArrivalsTest() { ranks.set_info(info_of_this_process(29600)); }

  // The rank has come; returns its end of the connection.
  base::Fd come(int rank, PeerSockets::Says says) { return come_to(ranks, rank, says); }

  static base::Fd come_to(Roster& arrivals, int rank,
                          PeerSockets::Says says = PeerSockets::Says::frames) {
    std::array<int, 2> ends = {};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    arrivals.lines.set(rank, base::Fd(ends[0]), says);
    return base::Fd(ends[1]);
  }

  Roster ranks = Roster(rank_of_three(0));
};

TEST_F(ArrivalsTest, FindTheMissingRanks) {
  EXPECT_EQ(ranks.find_missing(), (std::vector<int>{1, 2}));
  EXPECT_FALSE(ranks.is_complete());
  const base::Fd one = come(1, PeerSockets::Says::words);
  EXPECT_EQ(ranks.find_missing(), std::vector<int>{2});
  const base::Fd two = come(2, PeerSockets::Says::words);
  EXPECT_TRUE(ranks.is_complete());
}

TEST_F(ArrivalsTest, NameTheMissingRanksAfterATimeout) {
  const Error both = ranks.timed_out(kTimeout);
  EXPECT_EQ(both.code(), Code::timeout);
  EXPECT_EQ(both.culprit(), 1);
  EXPECT_STREQ(both.what(), "ranks 1 and 2 of 3 have not come within 12 s");
  const base::Fd one = come(1, PeerSockets::Says::words);
  ranks.hints.of_rank[2] = "it was odd";
  const Error last = ranks.timed_out(kTimeout);
  EXPECT_EQ(last.culprit(), 2);
  EXPECT_STREQ(last.what(), "rank 2 of 3 has not come within 12 s; it was odd");
}

TEST_F(ArrivalsTest, NameThePlaceWhereRank0WasNotMet) {
  const Roster others(rank_of_three(1), kRendezvous);
  const Error error = others.timed_out(kTimeout);
  EXPECT_EQ(error.culprit(), 0);
  EXPECT_STREQ(error.what(), "rank 0 of 3 has not been met at node1:29600 within 12 s");
}

TEST_F(ArrivalsTest, SayWhatToCheckIfNoDoubtIsKnown) {
  for (const int rank : {0, 1}) {
    Roster some(rank_of_three(rank), kRendezvous);
    PeerInfo info = info_of_this_process(29600);
    info.name = "node1";
    info.transport = "tcp";
    some.set_info(std::move(info));
    EXPECT_STREQ(
        some.timed_out(kTimeout).what(),
        rank == 0
            ? "ranks 1 and 2 of 3 have not come within 12 s; rank 0 uses the transport tcp and "
              "listens on node1 at port 29600: check PLAIT_TRANSPORT and the address of rank 0 on "
              "the others"
            : "rank 0 of 3 has not been met at node1:29600 within 12 s; check that rank 0 runs "
              "there and uses the transport tcp, that no other program has this port and that no "
              "firewall closes it");
    some.hints.of_rank[rank == 0 ? 1 : 0] = "it was odd";
    EXPECT_TRUE(std::string(some.timed_out(kTimeout).what()).ends_with("within 12 s; it was odd"));
  }
}

// Rank 1 was killed before rank 2 came.
TEST_F(ArrivalsTest, NameRanksThatHaveComeAndGone) {
  base::Fd one = come(1, PeerSockets::Says::words);
  EXPECT_STREQ(ranks.timed_out(kTimeout).what(), "rank 2 of 3 has not come within 12 s");
  one.reset();
  EXPECT_STREQ(ranks.timed_out(kTimeout).what(),
               "rank 2 of 3 has not come within 12 s, and rank 1 has come and gone");
}

TEST_F(ArrivalsTest, FindARankThatIsClaimedTwice) {
  const auto card_of = [](const char* pid) {
    PeerInfo info = info_of_this_process(29600);
    info.name = "node1";
    info.pid = pid;
    return info;
  };
  EXPECT_FALSE(ranks.find_second_claim(1, card_of("71")));
  base::Fd one = come(1, PeerSockets::Says::words);
  ranks.infos[1] = card_of("71");
  EXPECT_FALSE(ranks.find_second_claim(1, card_of("71")));
  const auto why = ranks.find_second_claim(1, card_of("72"));
  ASSERT_TRUE(why);
  EXPECT_EQ(why->culprit(), 1);
  EXPECT_STREQ(why->what(),
               "two processes (pid 71 on node1 and pid 72 on node1) claim rank 1 of 3");
  one.reset();  // pid 71 has ended, and was started again
  EXPECT_FALSE(ranks.find_second_claim(1, card_of("72")));
}

// A firewall that lets only the rendezvous through has this effect.
TEST_F(ArrivalsTest, SayWhereRanksThatHaveStartedCouldNotConnect) {
  const auto card_at = [](const char* host, const char* port, const char* hosts) {
    PeerInfo info = info_of_this_process(29600);
    info.host = info.name = host;
    info.port = port;
    info.hosts = hosts;
    return info;
  };
  ranks.set_info(card_at("node0", "41000", "10.0.0.1,10.9.0.1,10.0.0.1,127.0.0.1"));
  ranks.infos[1] = card_at("node1", "41001", "10.0.0.2,127.0.0.1");
  EXPECT_STREQ(ranks.timed_out(kTimeout).what(), "ranks 1 and 2 of 3 have not come within 12 s");
  ranks.infos[2] = card_at("node2", "41002", "10.0.0.3,127.0.0.1");
  const Error both = ranks.timed_out(kTimeout);
  EXPECT_EQ(both.code(), Code::timeout);
  EXPECT_EQ(both.culprit(), 1);
  EXPECT_STREQ(both.what(),
               "ranks 1 and 2 of 3 have started, and not connected to rank 0 within 12 s; rank 0 "
               "listens on node0 at port 41000 of 10.0.0.1, 10.9.0.1; check firewalls and "
               "PLAIT_INTERFACE, and that no rank is stopped");

  Roster others(rank_of_three(2), kRendezvous);
  others.set_info(ranks.infos[2]);
  others.infos[0] = ranks.infos[0];
  others.infos[1] = card_at("node1", "41001", "10.0.0.2,10.1.0.2,10.2.0.2,10.3.0.2,10.4.0.2");
  const base::Fd zero = come_to(others, 0);
  EXPECT_STREQ(
      others.timed_out(kTimeout).what(),
      "rank 1 of 3 has started, and not connected to rank 2 within 12 s; rank 1 listens on "
      "node1 at port 41001 of 10.0.0.2, 10.1.0.2, 10.2.0.2, 10.3.0.2 and 1 more; check "
      "firewalls and PLAIT_INTERFACE, and that no rank is stopped");
  others.hints.of_rank[1] = "it does not know the secret";
  const std::string doubtful = others.timed_out(kTimeout).what();
  EXPECT_TRUE(doubtful.ends_with("and 1 more; it does not know the secret")) << doubtful;
}

TEST_F(ArrivalsTest, TellConnectedRanksOfAnError) {
  const base::Fd one = come(1, PeerSockets::Says::frames);
  ranks.announce_error(Error(Code::system, "no descriptors"));
  const auto failure = find_failure(one);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, Code::system);
  EXPECT_EQ(failure->culprit, 0);
  EXPECT_TRUE(contains(failure->sentence, "rank 0 (pid ")) << failure->sentence;
  EXPECT_TRUE(contains(failure->sentence, "no descriptors")) << failure->sentence;
}

TEST_F(ArrivalsTest, PassOnThatARankWasInterrupted) {
  const base::Fd one = come(1, PeerSockets::Says::words);
  const base::Fd two = come(2, PeerSockets::Says::words);
  ranks.receive_waiting_ranks();
  ASSERT_TRUE(send_message(two, MessageKind::interrupted, "2 rank 2 was interrupted"));
  const Error error = expect_error(Code::peer_lost, [&] {
    await([&] {
      ranks.receive_waiting_ranks();
      return false;
    });
  });
  EXPECT_EQ(error.culprit(), 2);
  EXPECT_STREQ(error.what(), "rank 2 was interrupted");
  const Message message = next_message(one);
  EXPECT_EQ(message.kind, MessageKind::interrupted);
  EXPECT_EQ(message.text, "2 rank 2 was interrupted");
}

TEST_F(ArrivalsTest, TellARankThatAsksWhichOnesAreMissing) {
  const base::Fd one = come(1, PeerSockets::Says::words);
  ASSERT_TRUE(send_message(one, MessageKind::missing, std::to_string(5 * base::kSecond)));
  ranks.receive_waiting_ranks();
  const Message message = next_message(one);
  EXPECT_EQ(message.kind, MessageKind::missing);
  EXPECT_EQ(message.text, "2 rank 2 of 3 has not come within 5 s");
}

TEST_F(ArrivalsTest, LeaveTheQuestionToTheWelcomeOnceAllRanksHaveCome) {
  const base::Fd one = come(1, PeerSockets::Says::words);
  const base::Fd two = come(2, PeerSockets::Says::words);
  ASSERT_TRUE(send_message(one, MessageKind::missing, std::to_string(5 * base::kSecond)));
  ranks.receive_waiting_ranks();
  std::string heard;
  bool is_open = true;
  EXPECT_FALSE(read_message(one, heard, kMostHelloBytes, is_open));
  EXPECT_TRUE(is_open);
}

TEST_F(ArrivalsTest, NameTheHostsOfMissingRanks) {
  const auto sentence_with = [&](const char* placement) {
    const Environment environment(Environment::Variables{{"PLAIT_PLACEMENT", placement}});
    return std::string(ranks.timed_out(kTimeout).what());
  };
  EXPECT_EQ(sentence_with("node1:1,node2:2"),
            "ranks 1 and 2 of 3 (host node2) have not come within 12 s");
  EXPECT_EQ(sentence_with("node1:1,[fd00::2]:1,node3:1"),
            "ranks 1 and 2 of 3 (hosts [fd00::2], node3) have not come within 12 s");
  // Those of another world.
  for (const char* other : {"node1:1", "node1:2,node2:2", "node1:x", "node1:0,node2:3", ",", "3"})
    EXPECT_EQ(sentence_with(other), "ranks 1 and 2 of 3 have not come within 12 s") << other;

  const Environment environment(
      Environment::Variables{{"PLAIT_PLACEMENT", "node1:1,node2:1,node3:1"}});
  const Roster others(rank_of_three(1), Rendezvous{.host = "10.0.0.1", .port = 29600});
  const Error error = others.timed_out(kTimeout);
  EXPECT_STREQ(error.what(),
               "rank 0 of 3 (host node1) has not been met at 10.0.0.1:29600 within 12 s");
}

TEST_F(ArrivalsTest, BelieveWhatARankSaysBeforeItCloses) {
  base::Fd one = come(1, PeerSockets::Says::frames);
  const base::Fd two = come(2, PeerSockets::Says::frames);
  send_failure(one, {.code = Code::timeout, .culprit = 2, .sentence = "rank 2 is late"});
  one.reset();
  expect_error(Code::timeout, 2, [&] { ranks.check_for_ended_ranks(); });
}

TEST_F(ArrivalsTest, MissARankThatClosedItsConnection) {
  base::Fd one = come(1, PeerSockets::Says::frames);
  const base::Fd two = come(2, PeerSockets::Says::frames);
  ranks.infos[1] = info_of_this_process(29600);
  one.reset();
  ranks.check_for_ended_ranks();  // it may call again
  expect_error(Code::peer_lost, 1, "has died or given up", [&] {
    await([&] {
      ranks.check_for_ended_ranks();
      return false;
    });
  });
}

// Another host may have a rank's address too, for instance one of a bridge for containers.
TEST_F(ArrivalsTest, DoNotCallARankDeadBecauseAnotherHostRefusesConnections) {
  Roster others(rank_of_three(2));
  others.infos[1] = info_of_this_process(41001);
  others.infos[1].host = "another";
  others.infos[1].name = "node1";
  others.infos[1].pid = "71";
  others.infos[1].hosts = "10.0.0.2,127.0.0.1";
  const base::Fd zero = come_to(others, 0);
  others.ends.note(1, true);
  const Error error = expect_error(Code::timeout, [&] {
    await([&] {
      others.check_for_ended_ranks();
      return false;
    });
  });
  EXPECT_EQ(error.culprit(), 1);
  EXPECT_STREQ(error.what(),
               "rank 2 can't connect to rank 1 (pid 71 on node1), which said that it listens at "
               "port 41001 of 10.0.0.2: connections there are refused; check PLAIT_INTERFACE and "
               "firewalls, and whether rank 1 has ended");
}

}  // namespace
}  // namespace plait::comm::tcp
