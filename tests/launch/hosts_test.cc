#include "launch/hosts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "launch/launch.h"
#include "plait/error.h"
#include "tensor/sentence_of.h"

namespace plait::launch {
namespace {

std::string refusal(const std::string& text) {
  return sentence_of([&] { parse_hosts(text, 8); });
}

TEST(Hosts, AreReadWithTheirNumbersOfRanks) {
  const auto shares = parse_hosts("node1:2,node2,[fe80::1]:3", 8);
  ASSERT_EQ(shares.size(), 3);
  EXPECT_EQ(shares[0].host, "node1");
  EXPECT_EQ(shares[0].ranks, 2);
  EXPECT_EQ(shares[1].host, "node2");
  EXPECT_EQ(shares[1].ranks, 1);
  EXPECT_EQ(shares[2].host, "[fe80::1]");
  EXPECT_EQ(shares[2].ranks, 3);
}

TEST(Hosts, AreCalledWithoutTheirUser) {
  const auto shares = parse_hosts("me@node1:2,[fe80::1]", 8);
  EXPECT_EQ(shares[0].host, "me@node1");
  EXPECT_EQ(name_of(shares[0]), "node1");
  EXPECT_EQ(name_of(shares[1]), "[fe80::1]");
  const auto words = agent_words(
      shares[1], {.first = 0, .world = 1, .job = "j", .rendezvous = "node1:1"}, {}, {"true"});
  EXPECT_EQ(words[words.size() - 2], "fe80::1");
}

TEST(Hosts, AreRefusedWhereTheyMakeNoSense) {
  for (const char* text : {"", ",", "node1:", "node1:0", "node1:x", ":2", "node1:9", "-oProxy:1",
                           "2001:db8::5", "[2001:db8::5]:", "[2001:db8::5]x:1", "[2001:db8::5]x"}) {
    EXPECT_EQ(refusal(text), std::string("--hosts ") + text +
                                 " is not a list of hosts with their numbers of ranks, such as "
                                 "node1:2,node2:2");
  }
  EXPECT_EQ(
      refusal("localhost:2,node2:2"),
      "--hosts localhost:2,node2:2: ranks meet on the first host, which the others can't call "
      "localhost; give it the name that they know");
  EXPECT_EQ(refusal("localhost:2"), "nothing was refused");
  EXPECT_EQ(refusal("a:5,b:4"), "--hosts a:5,b:4 has 9 ranks; the most are 8");
}

TEST(Hosts, ARendezvousThatMakesNoSenseIsRefusedBeforeRanksStart) {
  ::setenv("PLAIT_RENDEZVOUS", "29600", 1);
  const std::string why = refusal("node1:1,node2:1");
  ::setenv("PLAIT_RENDEZVOUS", "node1:29600", 1);
  EXPECT_EQ(refusal("localhost:1,node2:1"), "nothing was refused");
  ::unsetenv("PLAIT_RENDEZVOUS");
  EXPECT_EQ(why,
            "PLAIT_RENDEZVOUS=29600 is not like HOST:PORT, as in node1:29600 or "
            "[fd00::1]:29600");
}

TEST(Hosts, AnAgentOfBlanksIsNoCommand) {
  ::setenv("PLAIT_RSH", "  ", 1);
  const std::string why = sentence_of([] {
    agent_words({"node1", 1}, {.first = 0, .world = 1, .job = "j", .rendezvous = "node1:1"}, {},
                {"true"});
  });
  ::unsetenv("PLAIT_RSH");
  EXPECT_EQ(why, "PLAIT_RSH holds only blanks; it names a command, such as ssh");
}

TEST(Hosts, APartComesBackAsItWasWritten) {
  const RunPart part = {.first = 2,
                        .world = 4,
                        .job = "ab",
                        .rendezvous = "node1:29600",
                        .hosts = "node1:2,[fd00::2]:1,jobs/worker:1"};
  ::setenv("PLAIT_PART", write(part).c_str(), 1);
  const auto read = part_from_environment();
  ::setenv("PLAIT_PART", "4/4/ab/x/y", 1);
  EXPECT_THROW(part_from_environment(), Error);
  ::unsetenv("PLAIT_PART");
  ASSERT_TRUE(read);
  EXPECT_EQ(write(*read), write(part));
  EXPECT_FALSE(part_from_environment());
}

TEST(Hosts, TheSecretIsAWordOfNoCommandLine) {
  ::setenv("PLAIT_SECRET", "0123456789abcdef", 1);
  ::setenv("PLAIT_TIMEOUT", "77s", 1);
  ::setenv("UCX_TLS", "rc,tcp", 1);
  std::string line;
  for (const std::string& word : agent_words(
           {"node1", 1},
           {.first = 0, .world = 1, .job = "j", .rendezvous = "node1:1", .secret = choose_secret()},
           {}, {"true"}))
    line += word;
  ::unsetenv("PLAIT_SECRET");
  ::unsetenv("PLAIT_TIMEOUT");
  ::unsetenv("UCX_TLS");
  EXPECT_NE(line.find("PLAIT_TIMEOUT=77s"), line.npos);
  EXPECT_NE(line.find("UCX_TLS=rc,tcp"), line.npos);
  EXPECT_EQ(line.find("PLAIT_SECRET"), line.npos);
  EXPECT_EQ(line.find("0123456789abcdef"), line.npos);
}

TEST(Hosts, TheSecretIsTheUsersOrARandomOne) {
  EXPECT_EQ(choose_secret().size(), 32);
  EXPECT_NE(choose_secret(), choose_secret());
  ::setenv("PLAIT_SECRET", "my own long secret", 1);
  EXPECT_EQ(choose_secret(), "my own long secret");
  for (const std::string& bad :
       {std::string("short"), std::string("a secret\nof two lines"), std::string(5000, 'x')}) {
    ::setenv("PLAIT_SECRET", bad.c_str(), 1);
    EXPECT_THROW(choose_secret(), Error) << bad;
  }
  ::unsetenv("PLAIT_SECRET");
}

TEST(Hosts, TheSecretIsTheFirstLineOfTheInput) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "a secret\nmore", 13), 13);
  EXPECT_EQ(read_secret(ends[0]), "a secret");
  char rest[8] = {};
  EXPECT_EQ(::read(ends[0], rest, sizeof(rest)), 4);
  ::close(ends[1]);
  EXPECT_THROW(read_secret(ends[0]), Error);  // as where the agent passes no input on
  ::close(ends[0]);
}

TEST(Hosts, AShellReadsAWordAsItWas) {
  EXPECT_EQ(quoted("a b"), "'a b'");
  EXPECT_EQ(quoted("it's $HOME"), "'it'\\''s $HOME'");
}

TEST(Hosts, MembersAreCalledByTheirNames) {
  Launch launch;
  launch.part.first = 2;
  EXPECT_EQ(launch.show({0}), "rank 2");
  EXPECT_EQ(launch.show({0, 1}), "ranks 2 and 3");
  launch.hosts = {{"a", 1}, {"b", 1}, {"c", 1}};
  EXPECT_EQ(launch.show({1}), "the run on b");
  EXPECT_EQ(launch.show({0, 1, 2}), "the runs on a, b and c");
}

}  // namespace
}  // namespace plait::launch
