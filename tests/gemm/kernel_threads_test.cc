// One TileKernel in the hands of many threads (src/gemm/kernel.h); kernel_test.cc has the rest of
// what it promises.
#include "gemm/kernel.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gemm/kernel_fixture.h"

namespace plait::gemm {
namespace {

class KernelThreads : public KernelTest {};

TEST_P(KernelThreads, ServesManyThreadsAtOnce) {
  const Sums want = product({0, max_rows()});
  const auto rows = packed_rows({0, max_rows()}, {0, kDepth});
  const auto panel = packed_panel({0, kDepth});
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  threads.reserve(wrong.size());
  for (int& mine : wrong) {
    threads.emplace_back([&, this] {
      const Fenced place(want.size() * sizeof(float));
      auto* sums = reinterpret_cast<float*>(place.data());
      kernel_->begin();
      for (int i = 0; i < 50; ++i) {
        kernel_->multiply(call_of(*rows, *panel, {0, kDepth}, sums));
        mine += same_bits(want, sums) ? 0 : 1;
      }
      kernel_->end();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST_P(KernelThreads, MayBeCreatedByManyThreadsAtOnce) {
  std::vector<std::unique_ptr<TileKernel>> made(8);
  std::vector<std::thread> threads;
  threads.reserve(made.size());
  for (auto& mine : made) threads.emplace_back([&mine] { mine = GetParam().create(); });
  for (std::thread& thread : threads) thread.join();
  const Sums want = product({0, max_rows()});
  for (auto& mine : made) {
    std::swap(kernel_, mine);
    EXPECT_TRUE(same_bits(want, product({0, max_rows()}).data()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, KernelThreads, testing::ValuesIn(kernels()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace plait::gemm
