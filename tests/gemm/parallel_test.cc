#include "gemm/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "gemm/matrix.h"
#include "plait/error.h"
#include "plait/gemm.h"
#include "plait/packed_weight.h"

namespace plait::gemm {
namespace {

TEST(Threads, AreAsManyAsAskedFor) {
  std::atomic<int> seen{0};
  on_threads(3, [&](int) { ++seen; });
  EXPECT_EQ(seen, 3);
  EXPECT_EQ(thread_count(7), 7);
  EXPECT_GE(thread_count(0), 1);
}

TEST(Threads, ThatNobodyCanMeanAreRefused) {
  const Matrix weight(Dtype::f32, 4, 4);
  const auto refusal = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  for (const int threads : {-1, 1025, 30000}) {
    const std::string ending = "threads=" + std::to_string(threads) + " is not between 0 and 1024";
    EXPECT_EQ(refusal([&] { select_gemm({.m = 1, .n = 1, .k = 1}, {.threads = threads}); }),
              "matmul: " + ending);
    EXPECT_EQ(refusal([&] {
                PackedWeight({.view = weight.view, .layout = WeightLayout::out_in}, threads);
              }),
              "packed weight: " + ending);
  }
}

// OpenMP's pool stays with the parent; a child that asked for it would wait for ever.
TEST(Threads, AreOneInAForkedChild) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer ends a child that is forked from several threads";
#endif
  on_threads(2, [](int) {});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    const Matrix x(Dtype::f32, 40, 300);
    const Matrix weight(Dtype::f32, 200, 300, 1);
    const Matrix out(Dtype::f32, 40, 200, 2);
    const PackedWeight packed({.view = weight.view, .layout = WeightLayout::out_in}, 2);
    select_gemm(
        {.m = 40, .n = 200, .k = 300, .x = Dtype::f32, .weight = Dtype::f32, .out = Dtype::f32},
        {.threads = 2})
        .run({.x = {x.view}, .weight = packed, .out = out.view});
    _exit(thread_count(2) == 1 ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the child hung, or used threads that it has not";
  std::atomic<int> seen{0};
  on_threads(2, [&](int) { ++seen; });
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace plait::gemm
