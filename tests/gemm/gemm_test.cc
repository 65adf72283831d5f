// Promises of a product (plait/gemm.h), for every backend that this machine has.
#include "plait/gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gemm/backend_test.h"
#include "gemm/matrix.h"
#include "gemm/problem.h"
#include "tensor/compare.h"
#include "tensor/tolerance.h"

namespace plait {
namespace {

// Is `got` the product, plus `before` and the bias, within what its roundings allow? compare() lets
// nothing pass that is not a number, or infinite, where the exact sum is finite.
void expect_product(const Problem& p, const ConstTensorView& got, const ConstTensorView* bias,
                    const ConstTensorView* before) {
  const tensor::Roundings way = {.terms = p.desc.k + 2, .out = p.desc.out};
  const std::vector<double> x = p.rows();
  const std::vector<double> w = p.columns();
  const Matrix want(Dtype::f32, p.desc.m, p.desc.n);
  std::vector<double> allowed;
  for (std::int64_t i = 0; i < p.desc.m; ++i) {
    for (std::int64_t j = 0; j < p.desc.n; ++j) {
      double sum = bias != nullptr ? at(*bias, 0, j) : 0;
      if (before != nullptr) sum += at(*before, i, j);
      double magnitude = std::abs(sum) + (before != nullptr ? std::abs(at(*before, i, j)) : 0);
      for (std::int64_t k = 0; k < p.desc.k; ++k) {
        const double product = x[static_cast<std::size_t>(i * p.desc.k + k)] *
                               w[static_cast<std::size_t>(j * p.desc.k + k)];
        sum += product;
        magnitude += std::abs(product);
      }
      static_cast<float*>(want.view.row(i))[j] = static_cast<float>(sum);
      allowed.push_back(tensor::tolerance(way, magnitude));
    }
  }
  const auto result = tensor::compare(got, want.view, [&](std::int64_t i, std::int64_t j) {
    return allowed[static_cast<std::size_t>(i * p.desc.n + j)];
  });
  EXPECT_TRUE(result.ok()) << result.describe() << ": " << name(p.desc) << ' ' << name(p.layout)
                           << " transposed " << p.x_transposed;
}

using Products = BackendTest;
using ProductsOfKernels = BackendTest;

constexpr std::array kFloats = {Dtype::f32, Dtype::bf16, Dtype::f16};

TEST_P(Products, AreRightForAllDtypesAndLayouts) {
  int done = 0;
  for (const Dtype x : kFloats) {
    for (const Dtype w : kFloats) {
      for (const Dtype out : kFloats) {
        const GemmDesc desc = {.m = 19, .n = 70, .k = 45, .x = x, .weight = w, .out = out};
        if (!can(desc)) continue;
        for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
          ++done;
          const bool transposed = done % 4 < 2;
          const Problem p(desc, layout, transposed);
          Matrix plain(out, desc.m, desc.n, 5);
          select(desc).run({.x = p.input(), .weight = p.weight(), .out = plain.view});
          expect_product(p, plain.view, nullptr, nullptr);

          Matrix y(out, desc.m, desc.n, 5);
          const Matrix bias(transposed ? Dtype::f32 : Dtype::bf16, 1, desc.n, 6);
          select(desc).run(
              {.x = p.input(), .weight = p.weight(), .out = y.view, .bias = bias.view});
          const ConstTensorView bias_view = bias.view;
          expect_product(p, y.view, &bias_view, nullptr);

          Matrix sum(out, desc.m, desc.n, 5);
          const Matrix before(out, desc.m, desc.n, 5);
          select(desc).run(
              {.x = p.input(), .weight = p.weight(), .out = sum.view, .accumulate = true});
          const ConstTensorView before_view = before.view;
          expect_product(p, sum.view, nullptr, &before_view);
        }
      }
    }
  }
  if (done == 0) GTEST_SKIP() << refusal_of(GetParam());
}

// Without k there is nothing but the bias, and what was there if it is added to.
TEST_P(Products, OfNothingAreTheBiasAndWhatWasThere) {
  for (const Dtype dtype : kFloats) {
    const GemmDesc desc = {.m = 5, .n = 64, .k = 0, .x = dtype, .weight = dtype, .out = dtype};
    if (!can(desc)) continue;
    const Problem p(desc);
    const PackedWeight packed(p.weight());
    const Matrix bias(Dtype::f32, 1, desc.n, 6);
    const ConstTensorView bias_view = bias.view;
    for (const bool is_packed : {false, true}) {
      GemmCall call = {.x = p.input(), .weight = p.weight()};
      if (is_packed) call.weight = packed;
      Matrix zeros(dtype, desc.m, desc.n, 5);
      call.out = zeros.view;
      select(desc).run(call);
      expect_product(p, zeros.view, nullptr, nullptr);
      Matrix both(dtype, desc.m, desc.n, 5);
      const Matrix before(dtype, desc.m, desc.n, 5);
      const ConstTensorView before_view = before.view;
      call.out = both.view;
      call.accumulate = true;
      select(desc).run(call);
      EXPECT_TRUE(tensor::same_bits(both.view, before.view));
      call.bias = bias.view;
      select(desc).run(call);
      expect_product(p, both.view, &bias_view, &before_view);
    }
  }
}

TEST_P(Products, TakeAnySize) {
  for (const Dtype dtype : kFloats) {
    for (const std::int64_t m : {0, 1, 16, 33}) {
      for (const std::int64_t n : {0, 1, 64, 129}) {
        for (const std::int64_t k : {0, 1, 2, 31, 32, 300}) {
          const GemmDesc desc = {
              .m = m, .n = n, .k = k, .x = dtype, .weight = dtype, .out = Dtype::f32};
          if (!can(desc)) continue;
          const Problem p(desc);
          Matrix y(Dtype::f32, m, n, 5);
          select(desc).run({.x = p.input(), .weight = p.weight(), .out = y.view});
          expect_product(p, y.view, nullptr, nullptr);
        }
      }
    }
  }
}

// The contract: an element's bits depend on its row, its column and the backend alone.
TEST_P(Products, HaveTheSameBitsHoweverTheyAreCut) {
  std::mt19937 random(11);
  // The reference takes its time, above all under a sanitizer.
  const std::int64_t share = GetParam() == "reference" ? 4 : 1;
  const auto below = [&](std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
  };
  for (const Dtype dtype : kFloats) {
    for (int round = 0; round < 6; ++round) {
      // In steps of 32, kernels read X where it is.
      const std::int64_t k_step = round < 2 ? 32 : 1;
      const Dtype out = kFloats.at(static_cast<std::size_t>(below(kFloats.size())));
      const GemmDesc desc = {.m = 1 + below(130 / share),
                             .n = 1 + below(300 / share),
                             .k = (1 + below(700 / share / k_step)) * k_step,
                             .x = dtype,
                             .weight = dtype,
                             .out = out};
      if (!can(desc)) continue;
      const Problem p(desc, round % 2 == 0 ? WeightLayout::out_in : WeightLayout::in_out,
                      round % 3 == 0);
      const PackedWeight packed(p.weight(), 1 + round % 2);
      Matrix whole(out, desc.m, desc.n, 5);
      select(desc, 1).run({.x = p.input(), .weight = packed, .out = whole.view});
      expect_product(p, whole.view, nullptr, nullptr);
      PackedInput ready;
      select(desc, 2).pack(p.input(), ready);
      for (int cut = 0; cut < 8; ++cut) {
        const std::int64_t any_row = below(desc.m);
        const std::int64_t row = cut % 2 == 0 ? any_row : any_row / 16 * 16;
        const std::int64_t col = below(desc.n);
        const GemmWindow window = {.rows = {row, row + 1 + below(desc.m - row)},
                                   .columns = {col, col + 1 + below(desc.n - col)}};
        Matrix part(out, window.rows.end - row, window.columns.end - col, 7);
        GemmCall call = {.x = p.input(), .weight = p.weight(), .out = part.view, .window = window};
        if (cut % 2 == 0) call.weight = packed;
        if (cut % 3 == 0) call.packed_x = &ready;
        select(desc, 1 + cut % 3).run(call);
        EXPECT_TRUE(tensor::same_bits(
            part.view,
            whole.view.row_range(row, window.rows.end).column_range(col, window.columns.end)))
            << name(desc) << " rows " << row << " to " << window.rows.end << " columns " << col
            << " to " << window.columns.end;
      }
    }
  }
}

// More rows than are packed at once, and more that are read where they are.
TEST_P(ProductsOfKernels, TakeManyRows) {
  for (const bool transposed : {true, false}) {
    const GemmDesc desc = {.m = 1100,
                           .n = 65,
                           .k = transposed ? 40 : 64,
                           .x = dtype(),
                           .weight = dtype(),
                           .out = Dtype::f32};
    if (!can(desc)) GTEST_SKIP() << refusal_of(GetParam());
    const Problem p(desc, WeightLayout::in_out, transposed);
    Matrix y(Dtype::f32, desc.m, desc.n, 5);
    select(desc, 2).run({.x = p.input(), .weight = p.weight(), .out = y.view});
    expect_product(p, y.view, nullptr, nullptr);
  }
}

TEST_P(ProductsOfKernels, TellOfEveryTileOnce) {
  const GemmDesc desc = {
      .m = 70, .n = 200, .k = 33, .x = dtype(), .weight = dtype(), .out = Dtype::f32};
  if (!can(desc)) GTEST_SKIP() << refusal_of(GetParam());
  const Problem p(desc);
  Matrix y(Dtype::f32, 60, 180, 5);
  Matrix whole(Dtype::f32, desc.m, desc.n, 5);
  select(desc).run({.x = p.input(), .weight = p.weight(), .out = whole.view});
  std::vector<int> seen(60 * 180);
  std::mutex guard;
  select(desc, 2).run({.x = p.input(),
                       .weight = p.weight(),
                       .out = y.view,
                       .window = {.rows = {5, 65}, .columns = {10, 190}},
                       .on_tile = [&](const Tile& tile) {
                         const std::lock_guard lock(guard);
                         for (std::int64_t i = tile.rows.begin; i < tile.rows.end; ++i) {
                           for (std::int64_t j = tile.columns.begin; j < tile.columns.end; ++j) {
                             ++seen.at(static_cast<std::size_t>((i - 5) * 180 + j - 10));
                             EXPECT_EQ(at(y.view, i - 5, j - 10),
                                       at(whole.view, i, j));  // finished
                           }
                         }
                       }});
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
}

TEST_P(ProductsOfKernels, WriteNothingBesideTheirPlace) {
  for (const Dtype out : kFloats) {
    const GemmDesc desc = {.m = 21, .n = 90, .k = 33, .x = dtype(), .weight = dtype(), .out = out};
    if (!can(desc)) GTEST_SKIP() << refusal_of(GetParam());
    const Problem p(desc);
    Matrix place(out, 30, 120, 5);
    const Matrix before(out, 30, 120, 5);
    const Matrix alone(out, 21, 90);
    const TensorView inside = place.view.row_range(4, 25).column_range(7, 97);
    select(desc).run({.x = p.input(), .weight = p.weight(), .out = inside});
    select(desc).run({.x = p.input(), .weight = p.weight(), .out = alone.view});
    EXPECT_TRUE(tensor::same_bits(inside, alone.view));
    EXPECT_TRUE(tensor::same_bits(place.view.row_range(0, 4), before.view.row_range(0, 4)));
    EXPECT_TRUE(tensor::same_bits(place.view.row_range(25, 30), before.view.row_range(25, 30)));
    EXPECT_TRUE(tensor::same_bits(place.view.column_range(0, 7), before.view.column_range(0, 7)));
    EXPECT_TRUE(
        tensor::same_bits(place.view.column_range(97, 120), before.view.column_range(97, 120)));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Products, all_backends(), name_of);
INSTANTIATE_TEST_SUITE_P(Kernels, ProductsOfKernels, all_kernels());

TEST(Gemm, WalksFromTheBestToTheReference) {
  const auto walk = explain_gemm({.m = 1, .n = 1, .k = 1, .x = Dtype::f32});
  EXPECT_EQ(walk.front().backend, "amx");
  EXPECT_EQ(walk.front().refusal, "x and the weight are not both bf16");
  EXPECT_EQ(walk.back().backend, "reference");
  EXPECT_TRUE(walk.back().refusal.empty());
}

}  // namespace
}  // namespace plait
