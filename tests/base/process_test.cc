#include "base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <string>
#include <thread>

#include "base/socket.h"

namespace plait::base {
namespace {

// A child that sends its own pidfd and waits to be killed.
class Child {
 public:
  Child() {
    const std::string name = "plait-process-test-" + std::to_string(::getpid());
    const auto listener = listen_at(name);
    pid_ = ::fork();
    if (pid_ == 0) {
      const auto line = connect_to(name);
      send_message(*line, "me", Fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0))));
      for (;;) ::pause();
    }
    wait_readable({&*listener}, 20 * kSecond);
    const auto line = accept_from(*listener);
    wait_readable({&*line}, 20 * kSecond);
    Message message;
    receive_message(*line, message);
    pidfd_ = std::move(message.fd);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) end();
  }

  pid_t pid() const { return pid_; }
  const Fd& pidfd() const { return pidfd_; }
  void signal(int number) const { ::kill(pid_, number); }
  void reap() {
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  void end() {
    signal(SIGKILL);
    reap();
  }

 private:
  pid_t pid_ = 0;
  Fd pidfd_;
};

// States change shortly after the signal.
void expect_state(pid_t pid, const std::string& state) {
  for (int tries = 0; tries < 2000 && state != state_of(pid); ++tries) ::usleep(1000);
  EXPECT_EQ(state, state_of(pid));
}

TEST(Process, PidfdNamesTheOneWhoMadeIt) {
  Child child;
  ASSERT_TRUE(child.pidfd());
  const pid_t pid = child.pid();
  const std::uint64_t start = start_of(pid);
  EXPECT_FALSE(has_ended(child.pidfd(), pid, start));
  child.signal(SIGKILL);
  wait_readable({&child.pidfd()}, 20 * kSecond);
  // The process has ended, but its parent has not waited for it yet.
  EXPECT_TRUE(has_ended(child.pidfd(), pid, start));
  expect_state(pid, "dead");
  child.reap();
  EXPECT_TRUE(has_ended(child.pidfd(), pid, start));
  EXPECT_EQ(std::string(state_of(pid)), "");
}

TEST(Process, KnowsAPidWithoutPidfd) {
  Child child;
  const pid_t pid = child.pid();
  const std::uint64_t start = start_of(pid);
  EXPECT_FALSE(has_ended(Fd(), pid, start));
  EXPECT_TRUE(has_ended(Fd(), pid, start - 1)) << "another process of this pid";
  child.signal(SIGKILL);
  expect_state(pid, "dead");
  EXPECT_TRUE(has_ended(Fd(), pid, start));
  child.reap();
  EXPECT_TRUE(has_ended(Fd(), pid, start));
}

// The number that a pidfd had, after the host program has closed it and opened something else.
TEST(Process, AnotherFileUnderThePidfdsNumberIsNoDeath) {
  Child child;
  const std::uint64_t start = start_of(child.pid());
  const Fd always_readable(::open("/dev/zero", O_RDONLY));
  ASSERT_TRUE(always_readable);
  EXPECT_FALSE(has_ended(always_readable, child.pid(), start));
  const int closed = ::dup(always_readable.get());
  ::close(closed);
  EXPECT_FALSE(has_ended(Fd(closed), child.pid(), start));
  const pid_t pid = child.pid();
  child.end();
  EXPECT_TRUE(has_ended(always_readable, pid, start));
  EXPECT_TRUE(has_ended(Fd(closed), pid, start));
}

// The kernel calls it dead as soon as its first thread has ended.
TEST(Process, OneWithoutItsFirstThreadHasNotEnded) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::thread([] { ::sleep(60); }).detach();
    ::syscall(SYS_exit, 0);
  }
  const std::uint64_t start = start_of(pid);
  expect_state(pid, "dead");
  EXPECT_FALSE(has_ended(Fd(), pid, start));
  EXPECT_TRUE(may_be_ending(open_memory_size(pid)));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EXPECT_TRUE(has_ended(Fd(), pid, start));
}

TEST(Process, ItsMemoryGoesBeforeItsEndIsSeen) {
  Child child;
  const Fd memory_size = open_memory_size(child.pid());
  ASSERT_TRUE(memory_size);
  EXPECT_FALSE(may_be_ending(memory_size));
  child.signal(SIGSTOP);
  expect_state(child.pid(), "stopped");
  EXPECT_FALSE(may_be_ending(memory_size));
  child.signal(SIGKILL);
  expect_state(child.pid(), "dead");
  EXPECT_TRUE(may_be_ending(memory_size));
  child.reap();
  EXPECT_TRUE(may_be_ending(memory_size));
  EXPECT_FALSE(open_memory_size(0));
}

TEST(Process, AStoppedOneHasNotEnded) {
  Child child;
  expect_state(child.pid(), "sleeping");
  child.signal(SIGSTOP);
  expect_state(child.pid(), "stopped");
  EXPECT_FALSE(has_ended(child.pidfd(), child.pid(), start_of(child.pid())));
  EXPECT_EQ(std::string(state_of(::getpid())), "running");
}

TEST(Process, HasAParent) {
  const Child child;
  EXPECT_EQ(parent_of(child.pid()), ::getpid());
  EXPECT_EQ(parent_of(::getpid()), ::getppid());
  EXPECT_EQ(parent_of(-1), 0);
}

TEST(Process, AStartTellsOneProcessFromAnother) {
  const std::uint64_t mine = start_of(::getpid());
  EXPECT_GT(mine, 0U);
  EXPECT_EQ(start_of(::getpid()), mine);
  ::usleep(30'000);  // some ticks
  const Child child;
  EXPECT_GT(start_of(child.pid()), mine);
  EXPECT_EQ(start_of(1 << 30), 0U);
}

TEST(ForkGuard, KnowsChildAndGrandchild) {
  const ForkGuard guard;
  EXPECT_FALSE(guard.in_child());
  const pid_t child = ::fork();
  if (child == 0) {
    const ForkGuard own;  // belongs to the child
    int wrong = guard.in_child() && !own.in_child() ? 0 : 1;
    const pid_t grandchild = ::fork();
    if (grandchild == 0) ::_exit(guard.in_child() && own.in_child() ? 0 : 1);
    int status = 1;
    ::waitpid(grandchild, &status, 0);
    wrong |= status;
    ::_exit(wrong == 0 ? 0 : 1);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(guard.in_child());
}

TEST(ForkGuard, ACopyStandsForTheSameProcess) {
  const ForkGuard guard;
  const pid_t child = ::fork();
  if (child == 0) {
    const ForkGuard own;
    const ForkGuard copy = guard;  // NOLINT(performance-unnecessary-copy-initialization)
    ::_exit(copy.in_child() && !own.in_child() ? 0 : 1);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace plait::base
