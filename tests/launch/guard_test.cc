#include "launch/guard.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>

#include "launch/pipes.h"

namespace plait::launch {
namespace {

constexpr int kPatience = 30'000;  // milliseconds

// A descriptor that becomes readable when the process ends, also if it is not our child.
base::Fd watch_end(pid_t pid) {
  return base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

bool ends(const base::Fd& process) {
  pollfd end = {.fd = process.get(), .events = POLLIN, .revents = 0};
  return ::poll(&end, 1, kPatience) == 1;
}

// A process that a test forgets ends by itself, long after the test has given up.
[[noreturn]] void sleep_for_long() {
  ::sleep(kPatience / 100);
  ::_exit(0);
}

// A process that runs another program, because the guard's socket closes in such a process.
pid_t start(const std::function<void()>& prepare, const Pipe& pipe, const char* script) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  prepare();
  ::dup2(pipe.writer.get(), STDOUT_FILENO);
  ::execl("/bin/sh", "sh", "-c", script, nullptr);
  ::_exit(1);
}

// The next number that a process has written.
pid_t read_pid(const Pipe& pipe) {
  std::string digits;
  for (char byte = 0; ::read(pipe.reader.get(), &byte, 1) == 1 && byte != '\n';) digits += byte;
  return static_cast<pid_t>(std::atoi(digits.c_str()));
}

// Orphans become our children, so that nothing is left behind.
class GuardTest : public testing::Test {
 protected:
  GuardTest() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~GuardTest() override {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) continue;
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  }
};

TEST_F(GuardTest, EndsTheGroupsOfARunThatIsKilled) {
  const Pipe pipe;
  const Pipe watched;
  const pid_t run = ::fork();
  if (run == 0) {
    Guard guard("guard-test-groups");
    const pid_t leader = start([] { ::setpgid(0, 0); }, pipe, "sleep 300 & echo $$; echo $!; wait");
    ::setpgid(leader, leader);
    guard.watch(leader);
    EXPECT_EQ(::write(watched.writer.get(), "\n", 1), 1);
    sleep_for_long();
  }
  const base::Fd leader = watch_end(read_pid(pipe));
  const base::Fd below = watch_end(read_pid(pipe));
  read_pid(watched);  // the guard knows of the group
  ::kill(run, SIGKILL);
  EXPECT_TRUE(ends(leader));
  EXPECT_TRUE(ends(below));
}

TEST_F(GuardTest, EndsWhatHasTheJobInItsEnvironment) {
  const Pipe pipe;
  const pid_t run = ::fork();
  if (run == 0) {
    // Another build's test may run at the same time.
    const std::string job = "guard-test-job-" + std::to_string(::getpid());
    const Guard guard(job);
    const auto leave = [&] {
      ::setsid();
      ::setenv("PLAIT_JOB", job.c_str(), 1);
    };
    start(leave, pipe, "echo $$; exec sleep 300");
    sleep_for_long();
  }
  const base::Fd process = watch_end(read_pid(pipe));
  ::kill(run, SIGKILL);
  EXPECT_TRUE(ends(process));
}

TEST_F(GuardTest, EndsNothingWhenTheRunEndsNormally) {
  pid_t guard_pid = 0;
  const pid_t leader = ::fork();
  if (leader == 0) sleep_for_long();
  ::setpgid(leader, leader);
  {
    Guard guard("guard-test-normal");
    guard.watch(leader);
    guard_pid = guard.pid();
    EXPECT_EQ(::kill(guard_pid, 0), 0);
  }
  EXPECT_EQ(::kill(guard_pid, 0), -1);  // ended and reaped
  EXPECT_EQ(::waitpid(leader, nullptr, WNOHANG), 0);
  ::kill(leader, SIGKILL);
  ::waitpid(leader, nullptr, 0);
}

TEST_F(GuardTest, IsNotKilledOnceItIsReaped) {
  Guard guard("guard-test-reaped");
  ::kill(guard.pid(), SIGKILL);
  ASSERT_EQ(::waitpid(guard.pid(), nullptr, 0), guard.pid());
  guard.bury();
  EXPECT_EQ(guard.pid(), -1);
  guard.watch(::getpid());  // the run goes on without it
}

}  // namespace
}  // namespace plait::launch
