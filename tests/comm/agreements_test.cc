// Agreements over TCP, at the moments at which a coordinator may die.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "comm/control/tcp_group.h"
#include "comm/milestones.h"
#include "comm/session/state.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait::comm::tcp {
namespace {

using Parts = Regrouping::Parts;
using std::chrono::milliseconds;

constexpr Nanoseconds kPatience = 20 * base::kSecond;

TcpGroup& group_of(Communicator& comm) { return dynamic_cast<TcpGroup&>(comm.state().group()); }

// Milestones: a rank has connected (a barrier would fail on those that are in it yet), and rank 0
// has died, or soon will; a rank has its answer; and what the tests say.
constexpr int kConnected = 0;
constexpr int kDead = 1;
constexpr int kAnswered = 2;
constexpr int kEnded = 3;
constexpr int kFollows = 4;
constexpr int kCutOff = 5;

[[noreturn]] void die() { ::_exit(testing::Test::HasFailure() ? 1 : 0); }

TEST(Agreements, BringWhatEachHasBroughtToAll) {
  run_over_tcp(4, [](Communicator& comm) {
    TcpGroup& group = group_of(comm);
    for (int round = 0; round < 20; ++round) {
      const auto part = [&](int rank) { return std::to_string(100 * round + rank); };
      EXPECT_EQ(group.agreements().agree(part(group.rank()), kPatience),
                (Parts{part(0), part(1), part(2), part(3)}));
    }
  });
}

// Rank 0 has answered rank 2 alone, and has died. Rank 1, which coordinates next, learns of it.
TEST(Agreements, KeepTheAnswerThatOneRankHas) {
  Milestones milestones;
  run_over_tcp(3, [&](Communicator& comm) {
    TcpGroup& group = group_of(comm);
    milestones.reach(kConnected);
    if (group.rank() == 0) {
      milestones.await(kConnected, 3);
      group.send_agreement(2, "answer 1 0\n+a\n+b\n-");
      milestones.reach(kDead);
      die();
    }
    if (group.rank() == 2) {
      milestones.await(kDead);
      std::this_thread::sleep_for(milliseconds(400));
      // It is told that the others go on without it, and it tells rank 1 all the same.
      expect_error(Code::timeout, [&] { group.agreements().agree("mine", kPatience); });
      milestones.await(kAnswered);  // the answer of a dead rank would not count
    } else {
      EXPECT_EQ(group.agreements().agree("mine", kPatience), (Parts{"a", "b", std::nullopt}));
      milestones.reach(kAnswered);
    }
  });
}

// Rank 0 has answered rank 3 alone, which sends the answer to rank 2 alone. Both die. Ranks 1 and 2
// follow rank 1 by then, and wait: they have been asked many times since rank 0 had ended.
TEST(Agreements, TakeNoAnswerOfACoordinatorBeforeTheOneThatIsFollowed) {
  Milestones milestones;
  int asked = 0;
  const auto hook = [&] {
    if (milestones.reached(kEnded) > 0 && ++asked == 20) milestones.reach(kFollows);
  };
  run_over_tcp(4,
               [&](Communicator& comm) {
                 TcpGroup& group = group_of(comm);
                 milestones.reach(kConnected);
                 if (group.rank() == 0) {
                   milestones.await(kConnected, 4);
                   milestones.reach(kDead);
                   die();
                 }
                 if (group.rank() == 3) {
                   milestones.await(kDead);
                   while (!group.mesh()->is_closed_by(0)) {
                     group.mesh()->move_surely();
                     std::this_thread::sleep_for(milliseconds(1));
                   }
                   milestones.reach(kEnded);
                   milestones.await(kFollows, 2);
                   group.send_agreement(2, "answer 1 0\n+a\n+b\n+c\n+d");
                   die();
                 }
                 const std::string mine = std::to_string(group.rank());
                 EXPECT_EQ(group.agreements().agree(mine, kPatience),
                           (Parts{std::nullopt, "1", "2", std::nullopt}));
               },
               {.interrupted = hook});
}

// A cable between ranks 0 and 2 was broken for a while: each takes the other for lost. Rank 2
// follows rank 1, which follows rank 0.
TEST(Agreements, TellARankThatWasCutOffAsSoonAsTheCableIsMended) {
  Milestones milestones;
  run_over_tcp(3, [&](Communicator& comm) {
    TcpGroup& group = group_of(comm);
    milestones.reach(kConnected);
    milestones.await(kConnected, 3);
    if (group.rank() != 1) {
      group.send_agreement(2 - group.rank(), "cut off");
      milestones.reach(kCutOff);
    }
    milestones.await(kCutOff, 2);  // the words of ranks 0 and 2 have come
    const Nanoseconds begin = base::now();
    if (group.rank() == 2) {
      group.mesh()->move_surely();
      const Error error =
          expect_error(Code::peer_lost, [&] { group.agreements().agree("mine", kPatience); });
      EXPECT_STREQ(error.what(),
                   "survivors: ranks 0 and 1 go on without rank 2, to which the "
                   "connection was broken for a while");
    } else {
      std::this_thread::sleep_for(milliseconds(300));  // rank 2 begins
      group.mesh()->move_surely();
      EXPECT_EQ(group.agreements().agree(std::to_string(group.rank()), kPatience),
                (Parts{"0", "1", std::nullopt}));
    }
    EXPECT_LT(base::now() - begin, kPatience / 2);
  });
}

// One of two halves that were apart for a while is refused, and may tell the other.
TEST(Agreements, TakeNoRefusalThatIsForOthers) {
  run_over_tcp(2, [](Communicator& comm) {
    TcpGroup& group = group_of(comm);
    Agreements& agreements = group.agreements();
    const int peer = 1 - group.rank();
    barrier(comm);
    EXPECT_TRUE(
        agreements.receive(peer, "refusal 1 1\nsurvivors: rank " + std::to_string(peer) +
                                     (peer == 0 ? " can't go on\n+\n-" : " can't go on\n-\n+")));
    EXPECT_EQ(agreements.agree(std::to_string(group.rank()), kPatience), (Parts{"0", "1"}));
    EXPECT_TRUE(agreements.receive(peer, "refusal 2 1\nsurvivors: no rank can go on\n+\n+"));
    const Error error = expect_error(Code::peer_lost, [&] { agreements.agree("", kPatience); });
    EXPECT_STREQ(error.what(), "survivors: no rank can go on");
  });
}

TEST(Agreements, EndTheConnectionThatBringsNonsense) {
  run_over_tcp(2, [](Communicator& comm) {
    TcpGroup& group = group_of(comm);
    barrier(comm);
    for (const char* text :
         {"", "part", "part 0\nx", "part x\nx", "part 1", "answer 1 0\n+a", "answer 1 2\n+a\n+b",
          "answer 1\n+a\n+b", "refusal 1 0", "refusal 1 0\nno\n+", "hello"})
      EXPECT_FALSE(group.agreements().receive(1 - group.rank(), text)) << text;
  });
}

}  // namespace
}  // namespace plait::comm::tcp
