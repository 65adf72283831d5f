// What every TileKernel promises (src/gemm/kernel.h), for each kernel that this processor can run.
// A kernel joins by its line in kernels.h.
#include "gemm/kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gemm/extremes.h"
#include "gemm/kernels.h"
#include "gemm/loops.h"
#include "tensor/tolerance.h"

namespace plait::gemm {
namespace {

using Sums = std::vector<float>;  // [rows][64]

struct Range {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t size() const { return end - begin; }
};

class Kernel : public testing::TestWithParam<Maker> {
 protected:
  static constexpr std::int64_t kDepth = 288;

  void SetUp() override {
    if (const char* reason = GetParam().refusal())
      GTEST_SKIP() << GetParam().name << ": " << reason;
    kernel_ = GetParam().create();
    kernel_->begin();
    fill(1);
  }
  void TearDown() override {
    if (kernel_) kernel_->end();
  }

  std::int64_t max_rows() const { return kernel_->max_rows(); }

  // Values that the operand holds exactly, of many sizes, so that every order of adding them up
  // has bits of its own.
  void fill(unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> value(-1, 1);
    std::uniform_int_distribution<int> exponent(-6, 6);
    const auto next = [&] {
      const float some = std::ldexp(value(random), exponent(random));
      return kernel_->operand() == Dtype::bf16 ? static_cast<float>(Bf16(some)) : some;
    };
    x_.resize(static_cast<std::size_t>(max_rows() * kDepth));
    w_.resize(static_cast<std::size_t>(kPanelColumns * kDepth));
    std::generate(x_.begin(), x_.end(), next);
    std::generate(w_.begin(), w_.end(), next);
  }

  std::int64_t bytes_of(std::int64_t elements) const {
    return elements * static_cast<std::int64_t>(size_of(kernel_->operand()));
  }

  float& x(std::int64_t row, std::int64_t k) {
    return x_[static_cast<std::size_t>(row * kDepth + k)];
  }
  float& w(std::int64_t k, std::int64_t col) {
    return w_[static_cast<std::size_t>(k * kPanelColumns + col)];
  }

  void put(std::byte* to, float value) const {
    convert(&value, Dtype::f32, to, kernel_->operand(), 1);
  }

  // Where packed row `row` has its element k of `depth`, in bytes; see RowForm.
  std::int64_t offset_in_rows(std::int64_t row, std::int64_t k, std::int64_t depth) const {
    if (kernel_->row_form() == RowForm::plain) return row * row_stride(depth) + bytes_of(k);
    const std::int64_t place = k / kKStep * 16 + row % 16;
    return row / 16 * row_stride(depth) + bytes_of(place * kKStep + k % kKStep);
  }

  // Plain rows begin wherever an element may, tiles at a cache line.
  std::int64_t row_stride(std::int64_t depth) const {
    if (kernel_->row_form() == RowForm::plain) return bytes_of(depth + 3);
    return bytes_of(16 * depth) + 64;
  }

  std::unique_ptr<Fenced> packed_rows(Range rows, Range k) {
    const std::int64_t bytes =
        offset_in_rows(rows.size() - 1, k.size() - 1, k.size()) + bytes_of(1);
    auto packed = std::make_unique<Fenced>(static_cast<std::size_t>(bytes));
    std::fill_n(packed->data(), bytes, std::byte{0xff});  // not a number, between the rows
    for (std::int64_t row = 0; row < rows.size(); ++row) {
      for (std::int64_t i = 0; i < k.size(); ++i)
        put(packed->data() + offset_in_rows(row, i, k.size()), x(rows.begin + row, k.begin + i));
    }
    return packed;
  }

  std::unique_ptr<Fenced> packed_panel(Range k) {
    const std::int64_t together = kernel_->operand() == Dtype::bf16 ? 2 : 1;
    auto panel =
        std::make_unique<Fenced>(static_cast<std::size_t>(bytes_of(k.size() * kPanelColumns)));
    for (std::int64_t i = 0; i < k.size(); ++i) {
      for (std::int64_t col = 0; col < kPanelColumns; ++col) {
        const std::int64_t at = (i / together * kPanelColumns + col) * together + i % together;
        put(panel->data() + bytes_of(at), w(k.begin + i, col));
      }
    }
    return panel;
  }

  void multiply(Range rows, Range k, float* sums, bool first, const TileOut& out = {}) {
    const auto packed = packed_rows(rows, k);
    const auto panel = packed_panel(k);
    kernel_->multiply({.rows = packed->data(),
                       .row_stride = row_stride(k.size()),
                       .panel = panel->data(),
                       .k = k.size(),
                       .sums = sums,
                       .row_count = static_cast<int>(rows.size()),
                       .first = first,
                       .ahead = nullptr,
                       .ahead_bytes = 0,
                       .out = out});
  }

  // In one call for each range of k, all of them in order.
  Sums product(Range rows, const std::vector<Range>& cuts = {{0, kDepth}}) {
    const auto elements = static_cast<std::size_t>(rows.size() * kPanelColumns);
    const Fenced place(elements * sizeof(float));
    auto* sums = reinterpret_cast<float*>(place.data());
    std::fill_n(sums, elements, std::numeric_limits<float>::quiet_NaN());
    for (const Range& k : cuts) multiply(rows, k, sums, k.begin == 0);
    return {sums, sums + elements};
  }

  // The same for each row alone.
  Sums one_by_one() {
    Sums all;
    for (std::int64_t row = 0; row < max_rows(); ++row) {
      const Sums one = product({row, row + 1});
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  std::unique_ptr<TileKernel> kernel_;
  std::vector<float> x_;
  std::vector<float> w_;
};

bool same_bits(const Sums& a, const float* b) {
  return std::memcmp(a.data(), b, a.size() * sizeof(float)) == 0;
}

TEST_P(Kernel, IsAsNearAsItsRoundingsAllow) {
  const Sums got = product({0, max_rows()});
  for (std::int64_t row = 0; row < max_rows(); ++row) {
    for (std::int64_t col = 0; col < kPanelColumns; ++col) {
      double want = 0;
      double magnitude = 0;
      for (std::int64_t k = 0; k < kDepth; ++k) {
        const double term = double{x(row, k)} * double{w(k, col)};
        want += term;
        magnitude += std::abs(term);
      }
      const double allowed = tensor::tolerance({.terms = kDepth}, magnitude);
      ASSERT_NEAR(got[static_cast<std::size_t>(row * kPanelColumns + col)], want, allowed)
          << "row " << row << ", column " << col;
    }
  }
}

// So all f32 kernels give the same bits on a processor that has fused multiply-adds, and so do
// those of bf16 that multiply pairs.
TEST_P(Kernel, AddsOneProductAfterAnother) {
  if (GetParam().add == nullptr) GTEST_SKIP() << "has an order of its own";
  const bool pairs = GetParam().pairs;
  for (std::int64_t k = 0; k < kDepth; k += 7) x(0, k) = std::ldexp(x(0, k), -135);  // denormals
  const Sums got = product({0, max_rows()});
  for (std::int64_t k = 0; pairs && k < kDepth; k += 7) x(0, k) = 0;  // what pairs count them as
  for (std::int64_t row = 0; row < max_rows(); ++row) {
    for (std::int64_t col = 0; col < kPanelColumns; ++col) {
      float want = 0;
      for (std::int64_t i = 0; i < kDepth; ++i) {
        const std::int64_t k = pairs ? i ^ 1 : i;
        want = GetParam().add(want, x(row, k), w(k, col));
      }
      ASSERT_EQ(got[static_cast<std::size_t>(row * kPanelColumns + col)], want)
          << "row " << row << ", column " << col;
    }
  }
}

TEST_P(Kernel, GivesARowTheSameBitsInAnyCompany) {
  const Sums alone = one_by_one();
  for (std::int64_t count = 1; count <= max_rows(); ++count) {
    const std::int64_t begin = max_rows() - count;
    ASSERT_TRUE(same_bits(product({0, count}), alone.data())) << count << " rows";
    ASSERT_TRUE(same_bits(product({begin, max_rows()}), alone.data() + begin * kPanelColumns))
        << "the last " << count << " rows";
  }
}

TEST_P(Kernel, GivesTheSameBitsWhereverKIsCut) {
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{7}, max_rows()}) {
    const Sums whole = product({0, rows});
    std::vector<Range> steps;
    for (std::int64_t cut = 0; cut < kDepth; cut += kKStep) {
      steps.push_back({cut, cut + kKStep});
      if (cut == 0) continue;
      ASSERT_TRUE(same_bits(whole, product({0, rows}, {{0, cut}, {cut, kDepth}}).data()))
          << rows << " rows, cut at " << cut;
    }
    ASSERT_TRUE(same_bits(whole, product({0, rows}, steps).data())) << rows << " rows, all cuts";
  }
}

TEST_P(Kernel, WritesNoSumsButItsOwn) {
  constexpr float kUntouched = -77;
  const std::int64_t around = 2 * kPanelColumns;
  for (std::int64_t count = 1; count <= max_rows(); ++count) {
    const std::int64_t mine = count * kPanelColumns;
    const Fenced place(static_cast<std::size_t>(mine + 2 * around) * sizeof(float));
    auto* all = reinterpret_cast<float*>(place.data());
    std::fill_n(all, mine + 2 * around, kUntouched);
    for (const bool first : {true, false}) {
      multiply({0, count}, {0, kKStep}, all + around, first);
      for (std::int64_t i = 0; i < around; ++i) {
        ASSERT_EQ(all[i], kUntouched) << count << " rows, " << around - i << " before";
        ASSERT_EQ(all[around + mine + i], kUntouched) << count << " rows, " << i << " behind";
      }
    }
  }
}

TEST_P(Kernel, RoundsAsTheLoopsDo) {
  if (!kernel_->rounds()) GTEST_SKIP() << "leaves sums";
  constexpr std::int64_t kCut = kDepth / kKStep / 2 * kKStep;
  constexpr std::int64_t kStride = kPanelColumns + 3;  // no row but the first is aligned
  x(0, 5) = std::numeric_limits<float>::quiet_NaN();
  x(1, 7) = std::ldexp(1.0F, 127);
  const Sums sums = product({0, max_rows()});
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    for (std::int64_t rows = 1; rows <= max_rows(); ++rows) {
      const std::size_t bytes = static_cast<std::size_t>(rows * kStride) * size_of(dtype);
      std::vector<std::byte> want(bytes, std::byte{0x5a});
      std::vector<std::byte> got = want;
      std::vector<std::byte> at_once = want;
      portable_loops().finish({.scales = nullptr, .bias = nullptr, .accumulate = false},
                              sums.data(),
                              {.data = want.data(),
                               .dtype = dtype,
                               .rows = rows,
                               .cols = kPanelColumns,
                               .row_stride = kStride});
      TileOut out = {.data = got.data(),
                     .row_stride = kStride * static_cast<std::int64_t>(size_of(dtype)),
                     .dtype = dtype};
      const Fenced place(static_cast<std::size_t>(rows * kPanelColumns) * sizeof(float));
      auto* parts = reinterpret_cast<float*>(place.data());
      multiply({0, rows}, {0, kCut}, parts, /*first=*/true);
      multiply({0, rows}, {kCut, kDepth}, parts, /*first=*/false, out);
      ASSERT_EQ(got, want) << rows << " rows to " << name(dtype);
      out.data = at_once.data();
      multiply({0, rows}, {0, kDepth}, parts, /*first=*/true, out);
      ASSERT_EQ(at_once, want) << rows << " rows to " << name(dtype) << " at once";
    }
  }
}

// Sums whose rounding has a rule of its own: one word of k, whose product is the value itself.
TEST_P(Kernel, RoundsExtremesAsTheLoopsDo) {
  if (!kernel_->rounds()) GTEST_SKIP() << "leaves sums";
  const std::vector<float> values = extremes();
  std::vector<float> sums(values);
  const std::vector<std::byte> zeros(static_cast<std::size_t>(bytes_of(kKStep)));
  const Fenced panel(static_cast<std::size_t>(bytes_of(kKStep * kPanelColumns)));
  std::fill_n(panel.data(), bytes_of(kKStep * kPanelColumns), std::byte{0});
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    std::vector<std::byte> want(kPanelColumns * size_of(dtype));
    std::vector<std::byte> got = want;
    // As many products of zeros with zeros as a block has leave what is there, but for the sign of
    // zeros.
    const Fenced place(kPanelColumns * sizeof(float));
    auto* parts = reinterpret_cast<float*>(place.data());
    std::copy(sums.begin(), sums.end(), parts);
    const TileCall call = {.rows = zeros.data(),
                           .row_stride = bytes_of(kKStep),
                           .panel = panel.data(),
                           .k = kKStep,
                           .sums = parts,
                           .row_count = 1,
                           .first = false};
    kernel_->multiply(call);
    std::vector<float> added(parts, parts + kPanelColumns);
    portable_loops().finish(
        {.scales = nullptr, .bias = nullptr, .accumulate = false}, added.data(),
        {.data = want.data(), .dtype = dtype, .rows = 1, .cols = kPanelColumns, .row_stride = 64});
    std::copy(sums.begin(), sums.end(), parts);
    TileCall rounding = call;
    rounding.out = {.data = got.data(), .row_stride = 0, .dtype = dtype};
    kernel_->multiply(rounding);
    EXPECT_EQ(got, want) << name(dtype);
  }
}

TEST(Kernels, OfAvx512Round) {
  for (const Maker& maker : kernels()) {
    if (maker.name.find("avx512") == std::string::npos || maker.refusal() != nullptr) continue;
    EXPECT_TRUE(maker.create()->rounds()) << maker.name;
  }
}

// Whatever is asked for, wherever it is: memory that isn't there is not read.
TEST_P(Kernel, AsksAheadWithoutReading) {
  const Sums want = product({0, max_rows()});
  const auto rows = packed_rows({0, max_rows()}, {0, kDepth});
  const auto panel = packed_panel({0, kDepth});
  const Fenced place(want.size() * sizeof(float));
  auto* sums = reinterpret_cast<float*>(place.data());
  for (const std::int64_t bytes : {1, 64, 1000, 1 << 20}) {
    kernel_->multiply({.rows = rows->data(),
                       .row_stride = row_stride(kDepth),
                       .panel = panel->data(),
                       .k = kDepth,
                       .sums = sums,
                       .row_count = static_cast<int>(max_rows()),
                       .first = true,
                       .ahead = panel->data() + bytes_of(kDepth * kPanelColumns),
                       .ahead_bytes = bytes});
    EXPECT_TRUE(same_bits(want, sums)) << bytes;
  }
}

TEST_P(Kernel, LeavesColumnsOfZerosZero) {
  for (std::int64_t k = 0; k < kDepth; ++k) {
    for (std::int64_t col = 50; col < kPanelColumns; ++col) w(k, col) = 0;
  }
  const Sums got = product({0, max_rows()});
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (i % kPanelColumns >= 50) {
      ASSERT_EQ(got[i], 0) << "element " << i;
    }
  }
}

TEST_P(Kernel, KeepsNotANumberInItsRow) {
  if (max_rows() < 3) GTEST_SKIP() << "has no row between two others";
  const Sums before = product({0, 3});
  x(1, 40) = std::numeric_limits<float>::infinity();
  x(1, 41) = std::numeric_limits<float>::quiet_NaN();
  const Sums after = product({0, 3});
  for (std::size_t col = 0; col < kPanelColumns; ++col) {
    ASSERT_EQ(after[col], before[col]);
    ASSERT_TRUE(std::isnan(after[kPanelColumns + col]));
    ASSERT_EQ(after[2 * kPanelColumns + col], before[2 * kPanelColumns + col]);
  }
}

TEST_P(Kernel, ServesManyThreadsAtOnce) {
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
        kernel_->multiply({.rows = rows->data(),
                           .row_stride = row_stride(kDepth),
                           .panel = panel->data(),
                           .k = kDepth,
                           .sums = sums,
                           .row_count = static_cast<int>(max_rows()),
                           .first = true});
        mine += same_bits(want, sums) ? 0 : 1;
      }
      kernel_->end();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST_P(Kernel, MayBeCreatedByManyThreadsAtOnce) {
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

TEST_P(Kernel, WorksOnBlocksThatItCanMultiply) {
  const Blocking blocking = kernel_->blocking();
  EXPECT_GE(blocking.rows, max_rows());
  EXPECT_EQ(blocking.rows % max_rows(), 0) << "the last call of each block has few rows";
  EXPECT_GE(blocking.panels, 1);
  EXPECT_GE(blocking.k, kKStep);
  EXPECT_EQ(blocking.k % kKStep, 0);
}

INSTANTIATE_TEST_SUITE_P(All, Kernel, testing::ValuesIn(kernels()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace plait::gemm
