#include "launch/signals.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace plait::launch {
namespace {

bool is_blocked(int signal) {
  sigset_t blocked;
  ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
  return ::sigismember(&blocked, signal) == 1;
}

bool is_ignored(int signal) {
  struct sigaction action = {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

int reaps_orphans() {
  int reaps = 0;
  ::prctl(PR_GET_CHILD_SUBREAPER, &reaps);
  return reaps;
}

int read_signal(const base::Fd& signals) {
  signalfd_siginfo info{};
  return ::read(signals.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                                  : 0;
}

TEST(Signals, ComeThroughADescriptor) {
  const RestoredSignals restored;
  take_over();
  const base::Fd signals = open_signals();
  EXPECT_EQ(read_signal(signals), 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCHLD}) {
    ::kill(::getpid(), signal);
    EXPECT_EQ(read_signal(signals), signal);
  }
}

TEST(Signals, ThatWereIgnoredStayIgnored) {
  const RestoredSignals restored;
  ::signal(SIGHUP, SIG_IGN);
  take_over();
  EXPECT_FALSE(is_blocked(SIGHUP));
  EXPECT_TRUE(is_ignored(SIGHUP));
  EXPECT_TRUE(is_blocked(SIGTERM));
  ::signal(SIGHUP, SIG_DFL);
}

TEST(Signals, TellWhatWasInherited) {
  const RestoredSignals restored;
  sigset_t usr1;
  ::sigemptyset(&usr1);
  ::sigaddset(&usr1, SIGUSR1);
  ::sigprocmask(SIG_SETMASK, &usr1, nullptr);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const Inherited inherited = take_over();
  EXPECT_EQ(::sigismember(&inherited.blocked, SIGUSR1), 1);
  EXPECT_EQ(::sigismember(&inherited.blocked, SIGTERM), 0);
  EXPECT_FALSE(inherited.ignored_sigpipe);
  EXPECT_EQ(inherited.files.rlim_cur, files.rlim_cur);
  EXPECT_TRUE(is_ignored(SIGPIPE));
  EXPECT_TRUE(take_over().ignored_sigpipe);
}

TEST(Signals, AreAsTheyWereWhenTheRunHasEnded) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit half = {.rlim_cur = before.rlim_max / 2, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &half);
  {
    const RestoredSignals restored;
    take_over();
    EXPECT_TRUE(is_blocked(SIGINT));
    EXPECT_EQ(reaps_orphans(), 1);
    rlimit raised{};
    ::getrlimit(RLIMIT_NOFILE, &raised);
    EXPECT_EQ(raised.rlim_cur, before.rlim_max);
    ::kill(::getpid(), SIGUSR1);  // it would end this process after the run
  }
  EXPECT_FALSE(is_blocked(SIGINT));
  EXPECT_FALSE(is_blocked(SIGTERM));
  EXPECT_FALSE(is_ignored(SIGPIPE));
  EXPECT_EQ(reaps_orphans(), 0);
  rlimit after{};
  ::getrlimit(RLIMIT_NOFILE, &after);
  EXPECT_EQ(after.rlim_cur, half.rlim_cur);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST(SignalsDeathTest, AskToEndAfterTheRunIfItsLoopDidNotReadThem) {
  const auto ask_too_late = [] {
    const RestoredSignals restored;
    take_over();
    ::kill(::getpid(), SIGTERM);
  };
  EXPECT_EXIT(ask_too_late(), testing::KilledBySignal(SIGTERM), "");
}

TEST(Signals, AskToEndOnlyOnce) {
  RestoredSignals restored;
  take_over();
  ::kill(::getpid(), SIGTERM);
  restored.discard_requests();
}

TEST(Signals, SomeEndTheRun) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) EXPECT_TRUE(ends_the_run(signal));
  for (const int signal : {SIGCHLD, SIGUSR1, SIGTSTP, SIGCONT}) EXPECT_FALSE(ends_the_run(signal));
}

}  // namespace
}  // namespace plait::launch
