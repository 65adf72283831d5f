// Few rows by a weight that is not packed (PlainRows in src/gemm/kernel.h) give the bits of the
// packed product.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <random>
#include <tuple>
#include <vector>

#include "base/sanitized.h"
#include "gemm/few_rows.h"
#include "gemm/kernels.h"
#include "gemm/product.h"
#include "plait/buffer.h"
#include "plait/packed_weight.h"

namespace plait::gemm {
namespace {

using Case = std::tuple<Maker, Dtype, WeightLayout>;

class PlainRowsOf : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Maker& maker = std::get<0>(GetParam());
    if (const char* reason = maker.refusal()) GTEST_SKIP() << reason;
    kernel_ = maker.create();
    plain_ = kernel_->plain_rows(storage_of(dtype()));
    ASSERT_GT(plain_.max_rows, 0) << maker.name << " packs this weight";
  }

  static Dtype dtype() { return std::get<1>(GetParam()); }
  static bool out_in() { return std::get<2>(GetParam()) == WeightLayout::out_in; }

  std::int64_t below(std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random_);
  }

  // Mostly small; often at an edge of squares, steps, panels and leaves.
  std::int64_t size(std::int64_t most) {
    if (below(3) == 0) return 1 + below(most);
    constexpr std::array<std::int64_t, 10> kEdges = {1, 15, 16, 17, 31, 33, 63, 64, 129, 200};
    return kEdges[static_cast<std::size_t>(below(kEdges.size()))];
  }

  // One in twenty is a denormal, infinite or -0, if there are extremes.
  float number(bool extreme) {
    const float some = std::uniform_real_distribution<float>(-1, 1)(random_);
    if (!extreme || below(20) != 0) return std::ldexp(some, static_cast<int>(below(13)) - 6);
    switch (below(30)) {
      case 0:
        return some * std::numeric_limits<float>::infinity();
      case 1:
        return std::numeric_limits<float>::quiet_NaN();
      default:
        return below(2) == 0 ? -0.0F : std::ldexp(some, -130);
    }
  }

  // A matrix whose last element is the last that may be read.
  struct Operand {
    Fenced memory;
    TensorView view;
  };
  Operand operand(Dtype dtype, std::int64_t rows, std::int64_t cols, bool extreme) {
    const std::int64_t stride = cols + below(3) * below(40);
    const auto elements = static_cast<std::size_t>((rows - 1) * stride + cols);
    Operand made = {.memory = Fenced(elements * size_of(dtype)), .view = {}};
    for (std::size_t i = 0; i < elements; ++i) {
      const float value = number(extreme);
      convert(&value, Dtype::f32, made.memory.data() + i * size_of(dtype), dtype, 1);
    }
    made.view = {.data = made.memory.data(),
                 .dtype = dtype,
                 .rows = rows,
                 .cols = cols,
                 .row_stride = stride};
    return made;
  }

  std::vector<float> product(GemmCall call, std::int64_t k, int threads) {
    const Range columns = call.window.columns;
    const std::int64_t n = columns.end - columns.begin;
    const std::int64_t m = call.window.rows.end - call.window.rows.begin;
    std::vector<float> out(static_cast<std::size_t>(m * n), 3);
    call.out = {.data = out.data(), .dtype = Dtype::f32, .rows = m, .cols = n, .row_stride = n};
    call.accumulate = accumulates_;
    std::mutex mutex;
    std::int64_t told = 0;
    call.on_tile = [&](const Tile& tile) {
      const std::lock_guard lock(mutex);
      told += (tile.rows.end - tile.rows.begin) * (tile.columns.end - tile.columns.begin);
    };
    const Depth depth = {.k = k};
    const Task task = {.call = call,
                       .rows = call.window.rows,
                       .columns = columns,
                       .depth = depth,
                       .leaves = Leaves(depth),
                       .threads = threads};
    Workspace workspace;
    Product(*kernel_, task, workspace).run();
    EXPECT_EQ(told, m * n);
    return out;
  }

  void expect_bits_of_packed(bool extreme, std::int64_t k, std::int64_t n) {
    const int most = below(2) == 0 && out_in() ? plain_.max_turned : 0;
    expect_bits_of_packed(extreme, k, n, 1 + below(std::max(plain_.max_rows, most)));
  }
  void expect_bits_of_packed(bool extreme, std::int64_t k, std::int64_t n, std::int64_t m) {
    const Operand x = operand(kernel_->operand(), m, k, extreme);
    const Operand w = operand(dtype(), out_in() ? n : k, out_in() ? k : n, extreme);
    const WeightView weight = {w.view, std::get<2>(GetParam())};
    const PackedWeight packed(weight, 1);
    const std::int64_t row = below(2) * below(m);
    const std::int64_t column = below(2) * below(n);
    GemmCall call = {.x = {x.view},
                     .weight = packed,
                     .window = {.rows = {row, row + 1 + below(m - row)},
                                .columns = {column, column + 1 + below(n - column)}}};
    if (below(2) == 0) call.window = {.rows = {0, m}, .columns = {0, n}};
    accumulates_ = below(2) == 0;
    const std::vector<float> want = product(call, k, 1);
    call.weight = weight;
    const std::vector<float> got = product(call, k, 1 + static_cast<int>(below(3)));
    ASSERT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
        << m << " rows, n " << n << " k " << k << " columns " << call.window.columns.begin << " to "
        << call.window.columns.end;
  }

  std::mt19937 random_{7};
  std::unique_ptr<TileKernel> kernel_;
  PlainRows plain_;
  bool accumulates_ = false;
};

constexpr int kRounds = kIsSlow ? 20 : 150;

TEST_P(PlainRowsOf, HaveTheBitsOfThePackedProduct) {
  for (int round = 0; round < kRounds && !HasFatalFailure(); ++round)
    expect_bits_of_packed(false, size(300), size(300));
}

TEST_P(PlainRowsOf, TreatDenormalsInfinitiesAndNotANumberAlike) {
  for (int round = 0; round < kRounds && !HasFatalFailure(); ++round)
    expect_bits_of_packed(true, size(300), size(150));
}

TEST_P(PlainRowsOf, AddLeavesAlike) {
  for (int round = 0; round < kRounds / 10 && !HasFatalFailure(); ++round)
    expect_bits_of_packed(round % 2 == 0, 1000 + below(16000), size(100));
}

// Counts that leave lanes of turned rows idle, and some that don't.
TEST_P(PlainRowsOf, OfEachCountHaveTheSameBits) {
  for (const std::int64_t m : {9, 10, 11, 12, 13, 16, 17, 20, 24, 28, 33, 44, 60, 64}) {
    expect_bits_of_packed(false, 32 * below(5) + size(40), size(100), m);
    if (HasFatalFailure()) return;
  }
}

// Rows of k are read in runs that end within them.
TEST_P(PlainRowsOf, OfManyColumnsHaveTheSameBits) {
  for (const std::int64_t m : {1, 4, 8}) {
    expect_bits_of_packed(true, size(70), 2000 + below(3000), m);
    if (HasFatalFailure()) return;
  }
}

// More rows than these are multiplied by pieces that are packed. Memory is asked for the next
// piece, of the same panel or of another, and is never read behind the weight's end.
TEST_P(PlainRowsOf, AreFollowedByRowsWithTheSameBits) {
  for (int round = 0; round < kRounds / 5 && !HasFatalFailure(); ++round) {
    const int most = std::max(plain_.max_rows, out_in() ? plain_.max_turned : 0);
    expect_bits_of_packed(round % 2 == 0, size(1500), size(300), most + 1 + below(60));
  }
}

// Zeros are added up to the end of a step: they make 0 of -0.
TEST_P(PlainRowsOf, AddTheZerosOfPanels) {
  for (const std::int64_t k : {1, 31, 32}) {
    Operand x = operand(kernel_->operand(), 1, k, false);
    Operand w = operand(dtype(), out_in() ? 20 : k, out_in() ? k : 20, false);
    for (const TensorView& view : {x.view, w.view}) {
      for (std::int64_t i = 0; i < view.rows; ++i) {
        for (std::int64_t j = 0; j < view.cols; ++j) {
          const float tiny = view.data == w.view.data ? -1e-5F : 1e-38F;
          convert(&tiny, Dtype::f32,
                  static_cast<std::byte*>(view.row(i)) +
                      j * static_cast<std::int64_t>(size_of(view.dtype)),
                  view.dtype, 1);
        }
      }
    }
    const WeightView weight = {w.view, std::get<2>(GetParam())};
    const PackedWeight packed(weight, 1);
    GemmCall call = {
        .x = {x.view}, .weight = packed, .window = {.rows = {0, 1}, .columns = {0, 20}}};
    const std::vector<float> want = product(call, k, 1);
    call.weight = weight;
    EXPECT_EQ(std::memcmp(product(call, k, 1).data(), want.data(), want.size() * 4), 0) << k;
  }
}

// The order of AMX, written down: the even and the odd k of each step in a chain of their own.
TEST(PlainRowsInChains, AddAsTilesDo) {
  const PlainRows plain = plain_rows_in_chains(Storage::bf16);
  if (plain.max_rows == 0) GTEST_SKIP() << base::refusal(base::InstructionSet::avx512);
  std::mt19937 random(3);
  std::uniform_real_distribution<float> value(-1, 1);
  constexpr std::int64_t kDepth = 3 * kKStep;
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kColumns = 21;
  std::vector<Bf16> x(kRows * kDepth);
  std::vector<Bf16> w(kColumns * kDepth);  // [k][columns]
  for (Bf16& one : x) one = Bf16(value(random));
  for (Bf16& one : w) one = Bf16(value(random));
  std::vector<Bf16> turned(w.size());
  for (std::int64_t k = 0; k < kDepth; ++k) {
    for (std::int64_t j = 0; j < kColumns; ++j)
      turned[static_cast<std::size_t>(j * kDepth + k)] =
          w[static_cast<std::size_t>(k * kColumns + j)];
  }
  const std::array<std::int64_t, 1> leaves = {kDepth};
  for (const bool out_in : {true, false}) {
    Buffer sums(kRows * kPanelColumns * sizeof(float));
    const auto* got = reinterpret_cast<const float*>(sums.data());
    plain.multiply({.rows = reinterpret_cast<const std::byte*>(x.data()),
                    .row_stride = kDepth * 2,
                    .step_stride = kKStep * 2,
                    .weight = reinterpret_cast<const std::byte*>((out_in ? turned : w).data()),
                    .weight_stride = (out_in ? kDepth : kColumns) * 2,
                    .out_in = out_in,
                    .columns = kColumns,
                    .k = kDepth,
                    .leaves = leaves,
                    .sums = reinterpret_cast<float*>(sums.data()),
                    .slot_stride = kRows * kPanelColumns,
                    .row_count = kRows});
    for (std::int64_t i = 0; i < kRows; ++i) {
      for (std::int64_t j = 0; j < kColumns; ++j) {
        float want = 0;
        for (std::int64_t step = 0; step < kDepth; step += kKStep) {
          std::array<float, 2> chains = {0, 0};
          for (std::int64_t k = step; k < step + kKStep; ++k) {
            float& chain = chains[static_cast<std::size_t>(k % 2)];
            chain =
                std::fma(static_cast<float>(x[static_cast<std::size_t>(i * kDepth + k)]),
                         static_cast<float>(w[static_cast<std::size_t>(k * kColumns + j)]), chain);
          }
          want += chains[0] + chains[1];
        }
        ASSERT_EQ(got[i * kPanelColumns + j], want) << out_in << ' ' << i << ' ' << j;
      }
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Maker& maker : kernels()) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
      const bool widens = maker.operand == Dtype::f32;
      const bool has_halves = maker.name != "vector_sse2" || dtype != Dtype::f16;
      if (maker.matrices || !has_halves) continue;  // which pack such weights
      if (!widens && dtype != Dtype::bf16) continue;
      for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out})
        all.emplace_back(maker, dtype, layout);
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kernels, PlainRowsOf, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& one) {
                           return std::get<0>(one.param).name + "_" +
                                  std::string(name(std::get<1>(one.param))) + "_" +
                                  std::string(name(std::get<2>(one.param)));
                         });

}  // namespace
}  // namespace plait::gemm
