#include "base/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tensor/sentence_of.h"

namespace plait::base {
namespace {

TEST(Parallel, ThreadsAreAsManyAsAskedFor) {
  std::atomic<int> seen{0};
  on_threads(3, [&](int) { ++seen; });
  EXPECT_EQ(seen, 3);
  EXPECT_EQ(thread_count(7), 7);
  EXPECT_GE(thread_count(0), 1);
}

TEST(Parallel, EveryNumberIsTakenOnce) {
  for (const int threads : {1, 3}) {
    std::vector<std::atomic<int>> seen(100);
    parallel_for(100, threads, [&](std::int64_t i) { ++seen.at(static_cast<std::size_t>(i)); });
    for (const std::atomic<int>& times : seen) EXPECT_EQ(times, 1);
  }
  parallel_for(0, 3, [](std::int64_t) { FAIL() << "there is nothing to do"; });
}

TEST(Parallel, WhatABodyThrowsReachesTheCaller) {
  for (const int threads : {1, 3}) {
    const auto throwing = [](std::int64_t i) {
      if (i == 5) throw std::runtime_error("the fifth");
    };
    EXPECT_THROW(parallel_for(100, threads, throwing), std::runtime_error) << threads;
  }
}

// A poll hook throws, for example, and its group then fails the calls of the other threads.
TEST(Parallel, WhatMadeOtherThreadsFailReachesTheCaller) {
  struct Own : Error {
    Own() : Error(Code::timeout, "the cause") {}
  };
  const auto rethrown = [](int cause, auto exception) {
    std::atomic<int> failed{0};
    on_threads(3, [&](int thread) {
      if (thread == cause) {
        while (failed < 2) std::this_thread::yield();
        throw exception;
      }
      ++failed;
      throw Error(Code::system, "the group has failed");
    });
  };
  for (const int cause : {0, 1, 2}) {
    EXPECT_THROW(rethrown(cause, std::runtime_error("the cause")), std::runtime_error) << cause;
    EXPECT_THROW(rethrown(cause, Own()), Own) << cause;
  }
}

TEST(Parallel, ThreadsThatNobodyCanMeanAreRefused) {
  for (const int threads : {-1, 1025, 30000}) {
    EXPECT_EQ(sentence_of([&] { check_threads(threads, "weaver"); }),
              "weaver: threads=" + std::to_string(threads) + " is not between 0 and 1024");
  }
  check_threads(0, "weaver");
  check_threads(1024, "weaver");
}

// OpenMP's threads exist only in the parent; a child that asked for them would wait for ever.
TEST(Parallel, ThreadsAreOneInAForkedChild) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer ends a child that is forked from several threads";
#endif
  on_threads(2, [](int) {});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    int seen = 0;  // one thread, so no atomic
    parallel_for(40, 2, [&](std::int64_t) { ++seen; });
    _exit(seen == 40 && thread_count(2) == 1 ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the child hung, or used threads that it has not";
  std::atomic<int> seen{0};
  on_threads(2, [&](int) { ++seen; });
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace plait::base
