// Products in a process that has OpenMP teams of its own: no thread more than those teams have.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gemm/matrix.h"
#include "gemm/omp_team.h"
#include "plait/gemm.h"
#include "plait/quantized.h"
#include "tensor/compare.h"

namespace plait {
namespace {

std::int64_t threads_here() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// A thread that has ended is listed for a moment longer.
std::int64_t threads_when_at_most(std::int64_t count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (threads_here() > count && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return threads_here();
}

// All that is done by many threads: a weight is quantised and packed, and multiplied with.
class Layer {
 public:
  Layer() : w_(Dtype::f32, 400, 300, 2), x_(Dtype::bf16, 90, 300, 1) {}

  Matrix product(int threads) const {
    const QuantizedWeight quantised = quantize({w_.view, WeightLayout::out_in}, {}, threads);
    const PackedWeight packed(quantised, threads);
    Gemm gemm =
        select_gemm({.m = 90, .n = 400, .k = 300, .out = Dtype::f32, .quant = quantised.scheme()},
                    {.threads = threads});
    PackedInput ready;
    gemm.pack({x_.view}, ready);
    Matrix y(Dtype::f32, 90, 400, 9);
    gemm.run({.x = {x_.view},
              .weight = packed,
              .out = y.view,
              .packed_x = &ready,
              .on_tile = [this](const Tile&) {
                const std::scoped_lock lock(mutex_);
                seen_.insert(std::this_thread::get_id());
              }});
    return y;
  }

  // Threads that have finished a tile since the last call.
  std::size_t take_seen() const {
    const std::scoped_lock lock(mutex_);
    return std::exchange(seen_, {}).size();
  }

 private:
  Matrix w_;
  Matrix x_;
  mutable std::mutex mutex_;
  mutable std::set<std::thread::id> seen_;
};

TEST(SharedPool, IsAsLargeAsTheEnvironmentSays) {
  const char* wanted = std::getenv("OMP_NUM_THREADS");
  if (wanted == nullptr) GTEST_SKIP() << "OMP_NUM_THREADS is not set";
  const int threads = std::stoi(wanted);
  const Layer layer;
  std::int64_t before = 0;
  std::int64_t after = 0;
  std::thread caller([&] {  // which has no pool yet
    before = threads_here();
    (void)layer.product(0);
    after = threads_here();
  });
  caller.join();
  EXPECT_LE(after, before + threads - 1);
  EXPECT_GE(after, before + std::min(threads, 3) - 1);  // there may be less to do for more
  EXPECT_LE(layer.take_seen(), static_cast<std::size_t>(threads));
}

TEST(SharedPool, IsThatOfTheCallersTeams) {
  const int allowed = omp_get_max_threads();
  const int team_threads = std::max(allowed, 2);
  const Layer layer;
  const Matrix alone = layer.product(1);
  OmpTeam own([](int) {});
  ASSERT_EQ(own.run(team_threads), team_threads);
  const std::int64_t with_team = threads_here();
  EXPECT_GE(with_team, team_threads);

  // Outside of the team: its threads.
  for (const int threads : {0, team_threads}) {
    EXPECT_TRUE(tensor::same_bits(layer.product(threads).view, alone.view)) << threads;
    EXPECT_LE(threads_here(), with_team) << threads;
  }

  // Inside: on the thread that calls, however many it asks for and OpenMP would give.
  const int levels = omp_get_max_active_levels();
  omp_set_max_active_levels(2);
  std::vector<Matrix> products;
  products.reserve(static_cast<std::size_t>(team_threads));
  for (int i = 0; i < team_threads; ++i) products.emplace_back(Dtype::f32, 90, 400, 7);
  std::vector<std::int64_t> counts(products.size());
  (void)layer.take_seen();
  OmpTeam callers([&](int thread) {
    const auto mine = static_cast<std::size_t>(thread);
    products.at(mine) = layer.product(thread % 2 == 0 ? 0 : 3);
    counts.at(mine) = threads_here();
  });
  EXPECT_EQ(callers.run(team_threads), team_threads);
  omp_set_max_active_levels(levels);
  EXPECT_EQ(layer.take_seen(), static_cast<std::size_t>(team_threads));
  for (const std::int64_t count : counts) EXPECT_LE(count, with_team);
  for (const Matrix& y : products) EXPECT_TRUE(tensor::same_bits(y.view, alone.view));

  // And everything is as before.
  ASSERT_EQ(own.run(team_threads), team_threads);
  EXPECT_TRUE(tensor::same_bits(layer.product(0).view, alone.view));
  EXPECT_LE(threads_here(), with_team);
  EXPECT_EQ(omp_get_max_threads(), allowed);
}

// OpenMP has a pool for each thread that asks for a team.
TEST(SharedPool, OfAThreadEndsWithIt) {
  const Layer layer;
  const Matrix alone = layer.product(1);
  std::thread([] {}).join();  // with the first one a sanitizer starts its own, which stays
  const std::int64_t before = threads_here();
  std::atomic<int> same{0};
  std::atomic<int> crowds{0};
  std::vector<std::thread> callers;
  callers.reserve(2);
  for (int i = 0; i < 2; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        if (tensor::same_bits(layer.product(2).view, alone.view)) ++same;
        if (threads_here() > before + 2 * 2) ++crowds;  // two callers, and one more for each
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(same, 2 * 5);
  EXPECT_EQ(crowds, 0);
  EXPECT_LE(threads_when_at_most(before), before);
}

}  // namespace
}  // namespace plait
