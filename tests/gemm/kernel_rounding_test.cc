// Promises of a kernel that rounds: the bits that the loops give (src/gemm/loops.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/sanitized.h"
#include "gemm/extremes.h"
#include "gemm/kernel.h"
#include "gemm/kernel_fixture.h"
#include "gemm/loops.h"

namespace plait::gemm {
namespace {

class AddingKernel : public KernelTest {};

// A leaf that ends in one call, and one that ends in its second, of any number of rows.
TEST_P(AddingKernel, AddsNodesAsTheLoopsDo) {
  if (!kernel_->adds_nodes()) GTEST_SKIP() << "leaves sums";
  const std::int64_t most = max_rows();
  const Sums leaf = product({0, most});
  std::vector<Fenced> places;
  places.reserve(4);
  Nodes nodes;
  for (std::size_t node = 0; node < 4; ++node) {
    fill(7 + static_cast<unsigned>(node));
    const Sums sums = product({0, most});
    places.emplace_back(sums.size() * sizeof(float));
    std::copy(sums.begin(), sums.end(), reinterpret_cast<float*>(places.back().data()));
    nodes.of[node] = reinterpret_cast<const float*>(places.back().data());
  }
  fill(1);
  constexpr std::int64_t kCut = kDepth / kKStep / 2 * kKStep;
  for (nodes.count = 0; nodes.count <= 4; ++nodes.count) {
    for (std::int64_t rows = 1; rows <= most; rows += rows < 14 ? 1 : 13) {
      const auto elements = static_cast<std::size_t>(rows * kPanelColumns);
      Sums want(leaf.begin(), leaf.begin() + static_cast<std::ptrdiff_t>(elements));
      for (std::size_t node = 0; node < static_cast<std::size_t>(nodes.count); ++node) {
        for (std::size_t i = 0; i < elements; ++i) want[i] = nodes.of[node][i] + want[i];
      }
      const Fenced place(elements * sizeof(float));
      auto* sums = reinterpret_cast<float*>(place.data());
      multiply({0, rows}, {0, kDepth}, sums, /*first=*/true, {}, nodes);
      ASSERT_TRUE(same_bits(want, sums)) << rows << " rows, " << nodes.count << " nodes";
      multiply({0, rows}, {0, kCut}, sums, /*first=*/true);
      multiply({0, rows}, {kCut, kDepth}, sums, /*first=*/false, {}, nodes);
      ASSERT_TRUE(same_bits(want, sums)) << rows << " rows, " << nodes.count << " nodes, cut";
      if (!kernel_->rounds()) continue;
      Sums out(elements);
      multiply({0, rows}, {0, kDepth}, sums, /*first=*/true,
               {.data = reinterpret_cast<std::byte*>(out.data()),
                .row_stride = kPanelColumns * sizeof(float),
                .dtype = Dtype::f32},
               nodes);
      ASSERT_TRUE(same_bits(want, out.data())) << rows << " rows, " << nodes.count << " rounded";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AddingKernel, testing::ValuesIn(kernels()),
                         [](const auto& one) { return one.param.name; });

class RoundingKernel : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (kernel_ && !kernel_->rounds()) GTEST_SKIP() << "leaves sums";
  }
};

TEST_P(RoundingKernel, RoundsAsTheLoopsDo) {
  constexpr std::int64_t kCut = kDepth / kKStep / 2 * kKStep;
  constexpr std::int64_t kStride = kPanelColumns + 3;  // no row but the first is aligned
  x(0, 5) = std::numeric_limits<float>::quiet_NaN();
  x(1, 7) = std::ldexp(1.0F, 127);
  const Sums sums = product({0, max_rows()});
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    for (std::int64_t rows = 1; rows <= max_rows(); rows += kIsSlow ? 5 : 1) {
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
TEST_P(RoundingKernel, RoundsExtremesAsTheLoopsDo) {
  const std::vector<float> values = extremes();
  std::vector<float> sums(values);
  const std::vector<std::byte> zeros(static_cast<std::size_t>(bytes_of(kKStep)));
  const Fenced panel(static_cast<std::size_t>(bytes_of(kKStep * kPanelColumns)));
  std::fill_n(panel.data(), bytes_of(kKStep * kPanelColumns), std::byte{0});
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    std::vector<std::byte> want(kPanelColumns * size_of(dtype));
    std::vector<std::byte> got = want;
    // A whole block of products of zeros leaves what is there, but for the sign of zeros.
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

INSTANTIATE_TEST_SUITE_P(All, RoundingKernel, testing::ValuesIn(kernels()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace plait::gemm
