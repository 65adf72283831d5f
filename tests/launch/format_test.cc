#include "launch/format.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <numeric>

namespace plait::launch {
namespace {

// The status of a process that exited, and of one that a signal has ended.
int exited(int status) { return status << 8; }
int killed(int signal) { return signal; }

TEST(Format, NamesSignals) {
  EXPECT_EQ(show_signal(SIGTERM), "SIGTERM");
  EXPECT_EQ(show_signal(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(show_signal(SIGRTMIN + 3), "signal " + std::to_string(SIGRTMIN + 3));
  EXPECT_EQ(show_signal(0), "signal 0");
}

TEST(Format, SaysHowAProcessEnded) {
  EXPECT_EQ(show_end(exited(0)), "exited with status 0");
  EXPECT_EQ(show_end(exited(3)), "exited with status 3");
  EXPECT_EQ(show_end(killed(SIGTERM)), "was killed by SIGTERM");
  EXPECT_EQ(show_end(killed(SIGKILL)),
            "was killed by SIGKILL (sent by a process, or because memory ran out)");
  EXPECT_EQ(show_end(killed(SIGSEGV) | WCOREFLAG), "was killed by SIGSEGV (core dumped)");
}

TEST(Format, HasTheStatusThatAShellWouldReturn) {
  EXPECT_EQ(exit_status_of(exited(0)), 0);
  EXPECT_EQ(exit_status_of(exited(255)), 255);
  EXPECT_EQ(exit_status_of(killed(SIGINT)), 130);
  EXPECT_EQ(exit_status_of(killed(SIGSEGV) | WCOREFLAG), 139);
}

TEST(Format, ListsFewRanksAndCountsMany) {
  EXPECT_EQ(show_ranks({1}), "rank 1");
  EXPECT_EQ(show_ranks({0, 4}), "ranks 0 and 4");
  EXPECT_EQ(show_ranks({0, 1, 3}), "ranks 0, 1 and 3");
  std::vector<int> ranks(8);
  std::iota(ranks.begin(), ranks.end(), 0);
  EXPECT_EQ(show_ranks(ranks), "ranks 0, 1, 2, 3, 4, 5, 6 and 7");
  ranks.push_back(8);
  EXPECT_EQ(show_ranks(ranks), "9 ranks");
}

}  // namespace
}  // namespace plait::launch
