#include "base/life_file.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

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

// Another process that has locked a place, optionally with a forked worker.
class Other {
 public:
  explicit Other(int place, bool has_worker = false)
      : file_(::memfd_create("life-test", MFD_CLOEXEC)), pid_(::fork()) {
    if (pid_ != 0) return;
    ::setpgid(0, 0);
    const LifeFile mine(std::move(file_));
    mine.lock(place);
    if (has_worker) static_cast<void>(::fork());
    for (;;) ::pause();
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  ~Other() {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  Fd take_file() { return std::move(file_); }
  void kill() const { ::kill(pid_, SIGKILL); }

 private:
  Fd file_;
  pid_t pid_;
};

TEST(LifeFile, APlaceIsLockedUntilItsProcessEnds) {
  Other other(3);
  const LifeFile file(other.take_file());
  EXPECT_TRUE(becomes([&] { return file.is_locked(3); }));
  EXPECT_FALSE(file.is_locked(2));
  EXPECT_FALSE(file.is_locked(4));
  other.kill();
  // The process has ended, but its parent has not waited for it yet.
  EXPECT_TRUE(becomes([&] { return !file.is_locked(3); }));
}

TEST(LifeFile, AWorkerThatItForkedDoesNotKeepItsPlace) {
  Other other(0, true);
  const LifeFile file(other.take_file());
  EXPECT_TRUE(becomes([&] { return file.is_locked(0); }));
  ::usleep(50'000);  // until there is a worker
  other.kill();
  EXPECT_TRUE(becomes([&] { return !file.is_locked(0); }));
}

TEST(LifeFile, ItsOwnPlaceIsNotLockedByAnother) {
  const LifeFile file(Fd(::memfd_create("life-test", MFD_CLOEXEC)));
  file.lock(1);
  EXPECT_FALSE(file.is_locked(1));
}

TEST(LifeFile, WhatTheKernelDoesNotSayIsNoDeath) {
  const LifeFile none{Fd()};
  EXPECT_TRUE(none.is_locked(0));
  EXPECT_THROW(none.lock(0), Error);
}

}  // namespace
}  // namespace plait::base
