#include "launch/remote_commands.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <vector>

#include "launch/hosts.h"

namespace plait::launch {
namespace {

constexpr base::Nanoseconds kSilence = 30 * base::kSecond;

struct Line {
  RemoteInputs inputs = {};
  base::Fd end = inputs.add("a secret");
  CallerInput caller{end.get(), kSilence};

  Line() { read_secret(end.get()); }
};

TEST(RemoteCommands, FollowTheSecret) {
  RemoteInputs inputs;
  const base::Fd end = inputs.add("a secret");
  inputs.tell(SIGUSR1);
  EXPECT_EQ(read_secret(end.get()), "a secret");
  EXPECT_EQ(CallerInput(end.get(), kSilence).read(), std::vector<int>{SIGUSR1});
}

TEST(RemoteCommands, ReachAllHosts) {
  RemoteInputs inputs;
  const std::array<base::Fd, 2> ends = {inputs.add(""), inputs.add("")};
  inputs.tell(SIGINT);
  for (const base::Fd& end : ends) {
    read_secret(end.get());
    EXPECT_EQ(CallerInput(end.get(), kSilence).read(), std::vector<int>{SIGINT});
  }
}

TEST(RemoteCommands, BeatsAreNoSignalsAndPutTheQuestionOff) {
  Line line;
  const auto before = line.caller.ask_at();
  line.inputs.tell(kBeat);
  line.inputs.tell(SIGUSR2);
  line.inputs.tell(kBeat);
  EXPECT_EQ(line.caller.read(), std::vector<int>{SIGUSR2});
  ASSERT_TRUE(before);
  EXPECT_GT(line.caller.ask_at(), before);
}

TEST(RemoteCommands, ACallerThatIsStoppedMayBeSilent) {
  Line line;
  line.inputs.tell(SIGTSTP);
  EXPECT_EQ(line.caller.read(), std::vector<int>{SIGTSTP});
  EXPECT_FALSE(line.caller.ask_at());
  line.inputs.tell(SIGCONT);
  EXPECT_EQ(line.caller.read(), std::vector<int>{SIGCONT});
  EXPECT_TRUE(line.caller.ask_at());
}

TEST(RemoteCommands, TheEndOfTheInputIsTheCallersEnd) {
  Line line;
  line.inputs = {};
  EXPECT_TRUE(line.caller.read().empty());
  EXPECT_EQ(line.caller.fd(), -1);
  EXPECT_FALSE(line.caller.ask_at());
}

TEST(RemoteCommands, DoNotWaitForAnAgentThatReadsNothing) {
  Line line;
  for (int i = 0; i < 100'000; ++i) line.inputs.tell(kBeat);  // a pipe holds 64 KiB
  EXPECT_TRUE(line.caller.read().empty());
}

TEST(RemoteCommands, WithoutACallerThereIsNoDeadline) {
  EXPECT_FALSE(CallerInput(-1, kSilence).ask_at());
}

}  // namespace
}  // namespace plait::launch
