// Products that a caller runs on the threads of an OpenMP team of its own.
#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "gemm/backend_test.h"
#include "gemm/matrix.h"
#include "gemm/omp_team.h"
#include "plait/gemm.h"
#include "tensor/compare.h"

namespace plait {
namespace {

constexpr int kThreads = 2;

class CallerTeam : public testing::TestWithParam<std::string> {
 protected:
  // Inner teams are not made, whether OpenMP would give them threads or not.
  void SetUp() override { omp_set_max_active_levels(2); }
  void TearDown() override { omp_set_max_active_levels(levels_); }

 private:
  int levels_ = omp_get_max_active_levels();
};

// The observations of one thread of its products.
struct Seen {
  int tiles = 0;
  int elsewhere = 0;  // tiles of another thread, or of a team inside the caller's
  int wrong = 0;
};

TEST_P(CallerTeam, RunsEachProductOnItsOwnThread) {
  const std::int64_t columns = GetParam() == "reference" ? 80 : 400;  // which takes its time
  const GemmDesc desc = {.m = 90, .n = columns, .k = 70, .out = Dtype::f32};
  if (!backend_can(GetParam(), desc)) GTEST_SKIP() << refusal_of(GetParam());
  const Matrix w(desc.weight, desc.n, desc.k, 2);
  const WeightView weight = {w.view, WeightLayout::out_in};
  const Matrix x(desc.x, kThreads * desc.m, desc.k, 1);
  const Matrix whole(Dtype::f32, kThreads * desc.m, desc.n);
  select_gemm(desc, {.backend = GetParam(), .threads = 1})
      .run({.x = {x.view}, .weight = weight, .out = whole.view});

  std::array<Seen, kThreads> seen = {};
  OmpTeam team([&](int thread) {
    Seen& mine = seen.at(static_cast<std::size_t>(thread));
    const Range rows = {thread * desc.m, (thread + 1) * desc.m};
    const std::thread::id self = std::this_thread::get_id();
    for (const int threads : {0, 3}) {
      Gemm gemm = select_gemm(desc, {.backend = GetParam(), .threads = threads});
      const PackedWeight packed(weight, threads);
      PackedInput ready;
      gemm.pack({x.view.row_range(rows.begin, rows.end)}, ready);
      const Matrix y(Dtype::f32, desc.m, desc.n, 9);
      std::atomic<int> tiles{0};
      std::atomic<int> elsewhere{0};
      gemm.run({.x = {x.view.row_range(rows.begin, rows.end)},
                .weight = packed,
                .out = y.view,
                .packed_x = &ready,
                .on_tile = [&](const Tile&) {
                  ++tiles;
                  const bool here = std::this_thread::get_id() == self && omp_get_level() == 1;
                  if (!here) ++elsewhere;
                }});
      mine.tiles += tiles;
      mine.elsewhere += elsewhere;
      if (!tensor::same_bits(y.view, whole.view.row_range(rows.begin, rows.end))) ++mine.wrong;
    }
  });
  ASSERT_EQ(team.run(kThreads), kThreads);
  for (const Seen& mine : seen) {
    EXPECT_GT(mine.tiles, 0);
    EXPECT_EQ(mine.elsewhere, 0);
    EXPECT_EQ(mine.wrong, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, CallerTeam, all_backends(), name_of);

}  // namespace
}  // namespace plait
