#include "base/futex.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace plait::base {
namespace {

constexpr Nanoseconds kLong = 60 * kSecond;

TEST(Futex, DoesNotSleepWhenTheWordHasChanged) {
  const std::atomic<std::uint32_t> word{1};
  const Nanoseconds begin = now();
  futex_wait(word, 0, kLong);
  EXPECT_LT(now() - begin, kLong / 2);
}

TEST(Futex, SleepsNoLongerThanItIsTold) {
  const std::atomic<std::uint32_t> word{1};
  const Nanoseconds begin = now();
  futex_wait(word, 1, 0);
  futex_wait(word, 1, -kSecond);
  futex_wait(word, 1, kMillisecond);
  EXPECT_LT(now() - begin, kLong / 2);
}

TEST(Futex, WakesEverySleeper) {
  std::atomic<std::uint32_t> word{0};
  const auto sleep = [&] {
    while (word.load() == 0) futex_wait(word, 0, kLong);
  };
  const Nanoseconds begin = now();
  std::thread one(sleep);
  std::thread other(sleep);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));  // until both sleep, most likely
  word.store(1);
  futex_wake_all(word);
  one.join();
  other.join();
  EXPECT_LT(now() - begin, kLong / 2);
}

TEST(Futex, WakesAnotherProcess) {
  void* const shared = ::mmap(nullptr, sizeof(std::uint32_t), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, /*fd=*/-1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto& word = *new (shared) std::atomic<std::uint32_t>(0);
  const Nanoseconds begin = now();
  const pid_t child = ::fork();
  if (child == 0) {
    while (word.load() == 0) futex_wait(word, 0, kLong);
    ::_exit(0);
  }
  ::usleep(10'000);
  word.store(1);
  futex_wake_all(word);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_LT(now() - begin, kLong / 2);
  ::munmap(shared, sizeof(std::uint32_t));
}

TEST(HeavyFence, WorksOnceTheProcessIsRegistered) {
  if (!register_for_heavy_fences()) GTEST_SKIP() << "the kernel has no membarrier";
  EXPECT_TRUE(heavy_fence());
}

}  // namespace
}  // namespace plait::base
