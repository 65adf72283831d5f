// Signals reach only the process that was seen, never a later one with its number.
#include "launch/processes.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <stop_token>
#include <thread>
#include <utility>

#include "base/sanitized.h"
#include "launch/guard.h"

namespace plait::launch {
namespace {

// A process may end between opening and reading its file, which must not be an error.
TEST(Processes, MayEndWhileTheyAreLookedAt) {
  const std::jthread births([](const std::stop_token& enough) {
    while (!enough.stop_requested()) {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(0);
      ::waitpid(child, nullptr, 0);
    }
  });
  for (int look = 0; look < (kIsSanitized ? 100 : 1000); ++look)
    EXPECT_LE(processes_below(::getpid()).size(), 1U);
}

// A child in its own group that sleeps until it is killed or the test ends.
class Sleeper {
 public:
  Sleeper() : pid_(::fork()) {
    if (pid_ == 0) {
      ::setpgid(0, 0);
      ::alarm(30);
      for (;;) ::pause();
    }
    ::setpgid(pid_, pid_);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() {
    if (pid_ > 0) end();
  }

  pid_t pid() const { return pid_; }

  bool is_alive() const {
    siginfo_t info = {};
    return ::waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
  }

  void end() {
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

  // The signal that ended it.
  int await_end() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

 private:
  pid_t pid_;
};

Process seen(pid_t pid) {
  for (const Process& process : processes_below(::getpid())) {
    if (process.pid == pid) return process;
  }
  ADD_FAILURE() << "no process " << pid;
  return {};
}

TEST(SignalProcess, ReachesTheProcessThatWasSeen) {
  Sleeper sleeper;
  const Process process = seen(sleeper.pid());
  EXPECT_GT(process.start, 0U);
  EXPECT_TRUE(signal_process(process, SIGTERM));
  EXPECT_EQ(sleeper.await_end(), SIGTERM);
  EXPECT_FALSE(signal_process(process, SIGTERM));
}

TEST(SignalProcess, SparesALaterOneOfTheSameNumber) {
  const Sleeper sleeper;
  Process earlier = seen(sleeper.pid());
  earlier.start -= 1;
  EXPECT_FALSE(signal_process(earlier, SIGKILL));
  EXPECT_TRUE(sleeper.is_alive());
}

TEST(SignalGroup, ReachesTheGroup) {
  Sleeper sleeper;
  signal_group(open_group(sleeper.pid()), SIGTERM);
  EXPECT_EQ(sleeper.await_end(), SIGTERM);
}

// Simulates that the system has given a dead leader's number to another group.
TEST(SignalGroup, SparesAnotherGroupOfTheSameNumber) {
  Sleeper leader;
  Group group = open_group(leader.pid());
  leader.end();
  const Sleeper unrelated;
  group.pid = unrelated.pid();
  signal_group(group, SIGKILL);
  EXPECT_TRUE(unrelated.is_alive());
}

TEST(Guard, OnceBuriedIsNotKilledByItsNumber) {
  const Sleeper unrelated;
  Guard guard("a job that nobody has");
  guard.watch(unrelated.pid());
  ASSERT_GT(guard.pid(), 0);
  ::kill(guard.pid(), SIGKILL);
  ASSERT_EQ(::waitpid(guard.pid(), nullptr, 0), guard.pid());
  guard.bury();
  EXPECT_LT(guard.pid(), 0);
  guard.watch(unrelated.pid());  // the guard has ended
  EXPECT_TRUE(unrelated.is_alive());
}

}  // namespace
}  // namespace plait::launch
