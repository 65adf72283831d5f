// A caller's on_tile (plait/gemm.h) may throw, run other products, and use the processor's tiles.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cfenv>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "gemm/backend_test.h"
#include "gemm/matrix.h"
#include "plait/gemm.h"
#include "tensor/compare.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace plait {
namespace {

// Leaves tiles as another library would: in shapes that fit together, so that a product which takes
// them for its own goes on, but of one row.
#if defined(__x86_64__)
[[gnu::target("amx-tile")]] void shape_tiles() {
  alignas(64) std::array<std::uint8_t, 64> shapes = {};
  shapes[0] = 1;  // the first palette
  for (std::size_t tile = 0; tile < 8; ++tile) {
    shapes.at(16 + 2 * tile) = 64;             // bytes of a row
    shapes.at(48 + tile) = tile < 6 ? 1 : 16;  // rows; 6 and 7 are the panel's
  }
  // gcc 12 believes that the intrinsic reads the first 8 bytes alone, and drops the other stores.
  asm volatile("" : : "r"(shapes.data()) : "memory");
  _tile_loadconfig(shapes.data());
}
#else
void shape_tiles() {}
#endif

struct Stop {
  Tile tile;
};

class Hooks : public BackendTest {
 protected:
  void SetUp() override {
    // The reference takes its time, above all under a sanitizer.
    const std::int64_t columns = backend() == "reference" ? 80 : 400;
    desc_ = {.m = 100, .n = columns, .k = 70, .x = dtype(), .weight = dtype(), .out = Dtype::f32};
    if (!can(desc_)) GTEST_SKIP() << refusal_of(GetParam());
    x_ = std::make_unique<Matrix>(dtype(), desc_.m, desc_.k, 1);
    w_ = std::make_unique<Matrix>(dtype(), desc_.n, desc_.k, 2);
    whole_ = std::make_unique<Matrix>(Dtype::f32, desc_.m, desc_.n);
    Gemm gemm = select();
    gemm.run(call(whole_->view));
  }
  Gemm select(int threads = 1) const { return BackendTest::select(desc_, threads); }
  GemmCall call(const TensorView& out, std::function<void(const Tile&)> hook = {}) const {
    return {.x = {x_->view},
            .weight = WeightView{w_->view, WeightLayout::out_in},
            .out = out,
            .on_tile = std::move(hook)};
  }
  // With other numbers in its place before.
  void expect_right(Gemm& gemm, const std::function<void(const Tile&)>& hook = {}) const {
    const Matrix y(Dtype::f32, desc_.m, desc_.n, 9);
    gemm.run(call(y.view, hook));
    EXPECT_TRUE(tensor::same_bits(y.view, whole_->view));
  }

  GemmDesc desc_ = {};
  std::unique_ptr<Matrix> x_;
  std::unique_ptr<Matrix> w_;
  std::unique_ptr<Matrix> whole_;
};

TEST_P(Hooks, ThrowToTheCaller) {
  const Matrix y(Dtype::f32, desc_.m, desc_.n);
  for (const int threads : {1, 3}) {
    Gemm gemm = select(threads);
    int caught = 0;
    try {
      gemm.run(call(y.view, [](const Tile& tile) {
        if (tile.rows.begin <= 70 && tile.rows.end > 70 && tile.columns.end > 70) throw Stop{tile};
      }));
    } catch (const Stop& stop) {
      ++caught;
      EXPECT_LE(stop.tile.rows.begin, 70);
      EXPECT_GT(stop.tile.columns.end, 70);
    }
    EXPECT_EQ(caught, 1) << threads << " threads";
    expect_right(gemm);
  }
}

// One of them arrives, whichever was first.
TEST_P(Hooks, MayThrowFromAllThreads) {
  const Matrix y(Dtype::f32, desc_.m, desc_.n);
  for (const int threads : {1, 3}) {
    Gemm gemm = select(threads);
    for (int round = 0; round < 5; ++round)
      EXPECT_THROW(gemm.run(call(y.view, [](const Tile& tile) { throw Stop{tile}; })), Stop);
    expect_right(gemm);
  }
}

// A product of its own for each thread, which shapes the processor's tiles anew: for other rows, or
// for as many as most strips of the outer one have, and leaves them unshaped.
TEST_P(Hooks, MayRunOtherProducts) {
  if (backend() == "reference") GTEST_SKIP() << "has no state, and takes its time";
  for (const std::int64_t rows : {7, 32}) {
    for (const int threads : {1, 2}) {
      const Range inner_rows = {20, 20 + rows};
      const ConstTensorView want = whole_->view.row_range(inner_rows.begin, inner_rows.end);
      std::mutex guard;
      std::unordered_map<std::thread::id, Gemm> products;
      std::atomic<int> wrong{0};
      Gemm outer = select(threads);
      expect_right(outer, [&](const Tile&) {
        Gemm* inner = nullptr;
        {
          const std::lock_guard lock(guard);
          inner = &products.try_emplace(std::this_thread::get_id(), select()).first->second;
        }
        const Matrix part(Dtype::f32, rows, desc_.n, 9);
        GemmCall call_of_part = call(part.view);
        call_of_part.window.rows = inner_rows;
        inner->run(call_of_part);
        if (!tensor::same_bits(part.view, want)) ++wrong;
      });
      EXPECT_EQ(wrong, 0) << rows << " rows, " << threads << " threads";
    }
  }
}

// A framework's switch for denormals does this: the next tile keeps its own again.
TEST_P(Hooks, MaySetHowTheThreadRounds) {
  Gemm gemm = select();
  expect_right(gemm, [](const Tile&) { std::fesetround(FE_TOWARDZERO); });
  EXPECT_EQ(std::fegetround(), FE_TONEAREST) << "run() leaves the caller's mode";
}

// Another library may do this on the caller's thread, and plait can't know of it.
TEST_P(Hooks, MayShapeTheTiles) {
  const auto walk = explain_gemm({.m = 1, .n = 1, .k = 1});
  if (!walk.front().refusal.empty()) GTEST_SKIP() << walk.front().refusal;
  for (const int threads : {1, 2}) {
    Gemm gemm = select(threads);
    expect_right(gemm, [](const Tile&) { shape_tiles(); });
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Hooks, all_kernels(), name_of);

}  // namespace
}  // namespace plait
