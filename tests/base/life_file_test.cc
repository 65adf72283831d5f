#include "base/life_file.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <optional>
#include <utility>

#include "base/region.h"
#include "plait/error.h"

namespace plait::base {
namespace {

template <class Condition>
bool becomes(const Condition& condition) {
  for (int tries = 0; tries < 20'000; ++tries) {
    if (condition()) return true;
    ::usleep(1000);
  }
  return false;
}

// A descriptor of the same file that forked children keep: what another process gets by a message.
Fd pass(const Fd& file) { return Fd(::dup(file.get())); }

// Another process that has locked a place, and does something afterwards.
class Other {
 public:
  Other(const Fd& file, int place, const std::function<void()>& then = [] {}) {
    Fd passed = pass(file);
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setpgid(0, 0);
    LifeFile mine(std::move(passed));
    mine.lock(place);
    then();
    for (;;) ::pause();
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  ~Other() {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  void kill() const { ::kill(pid_, SIGKILL); }

 private:
  pid_t pid_;
};

void close_all_descriptors() {
  for (int fd = 3; fd < 1024; ++fd) ::close(fd);
}

class LifeFileTest : public testing::Test {
 protected:
  // Until another process has locked it, or until that has ended.
  bool becomes_locked(int place) const {
    return becomes([&] { return file_.is_locked(place) == true; });
  }
  bool becomes_free(int place) const {
    return becomes([&] { return file_.is_locked(place) == false; });
  }

  const Fd named_ = make_anonymous_file("life-test", 8);
  const LifeFile file_{pass(named_)};
};

TEST_F(LifeFileTest, APlaceIsLockedUntilItsProcessEnds) {
  const Other other(named_, 3);
  EXPECT_TRUE(becomes_locked(3));
  EXPECT_EQ(file_.is_locked(2), false);
  EXPECT_EQ(file_.is_locked(4), false);
  other.kill();
  // The process has ended, but its parent has not waited for it yet.
  EXPECT_TRUE(becomes_free(3));
}

TEST_F(LifeFileTest, AWorkerThatItForkedDoesNotKeepItsPlace) {
  const Other other(named_, 0, [] { static_cast<void>(::fork()); });
  EXPECT_TRUE(becomes_locked(0));
  ::usleep(50'000);  // until there is a worker
  other.kill();
  EXPECT_TRUE(becomes_free(0));
}

// A child of which no handler of fork() hears.
TEST_F(LifeFileTest, AClonedChildDoesNotKeepItsPlaceEither) {
  const Other other(named_, 0, [] {
    static_cast<void>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  });
  EXPECT_TRUE(becomes_locked(0));
  ::usleep(50'000);
  other.kill();
  EXPECT_TRUE(becomes_free(0));
}

// Daemons close all descriptors, and so does os.closerange().
TEST_F(LifeFileTest, AProcessThatClosesAllDescriptorsKeepsItsPlace) {
  const Other closes(named_, 1, close_all_descriptors);
  const Other next(named_, 2, close_all_descriptors);
  EXPECT_TRUE(becomes_locked(1));
  EXPECT_TRUE(becomes_locked(2));
  ::usleep(50'000);  // until they have closed all
  EXPECT_EQ(file_.is_locked(1), true);
  closes.kill();
  EXPECT_TRUE(becomes_free(1));
  EXPECT_EQ(file_.is_locked(2), true);
}

TEST_F(LifeFileTest, AProcessMayBeSeveral) {
  std::optional<LifeFile> one(pass(named_));
  LifeFile two(pass(named_));
  one->lock(1);
  two.lock(2);
  EXPECT_EQ(file_.is_locked(1), true);
  EXPECT_EQ(two.is_locked(1), true);
  one.reset();
  EXPECT_EQ(file_.is_locked(1), false);
  EXPECT_EQ(file_.is_locked(2), true);
}

TEST_F(LifeFileTest, WhatTheKernelDoesNotSayIsNoDeath) {
  LifeFile none{Fd()};
  EXPECT_EQ(none.is_locked(0), std::nullopt);
  EXPECT_THROW(none.lock(0), Error);
}

// Closed by the host program, which then opens another file.
TEST_F(LifeFileTest, AnotherFileOfThisNumberSaysNothing) {
  Fd number = pass(named_);
  const int fd = number.get();
  const LifeFile life(std::move(number));
  EXPECT_EQ(life.is_locked(0), false);
  ASSERT_EQ(::dup2(make_anonymous_file("another", 8).get(), fd), fd);
  EXPECT_EQ(life.is_locked(0), std::nullopt);
  ASSERT_EQ(::close(fd), 0);
  EXPECT_EQ(life.is_locked(0), std::nullopt);
}

}  // namespace
}  // namespace plait::base
