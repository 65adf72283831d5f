// What a product promises (plait/gemm.h), for every backend that this machine has.
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

#include "base/check.h"
#include "gemm/backend_test.h"
#include "gemm/matrix.h"
#include "plait/error.h"
#include "tensor/compare.h"
#include "tensor/tolerance.h"

namespace plait {
namespace {

// One product's operands.
struct Problem {
  explicit Problem(const GemmDesc& description, WeightLayout weight_layout = WeightLayout::out_in,
                   bool transposed = false)
      : desc(description),
        x(desc.x, transposed ? desc.k : desc.m, transposed ? desc.m : desc.k, 1),
        w(desc.weight, weight_layout == WeightLayout::out_in ? desc.n : desc.k,
          weight_layout == WeightLayout::out_in ? desc.k : desc.n, 2),
        layout(weight_layout),
        x_transposed(transposed) {}

  Input input() const { return {.view = x.view, .transposed = x_transposed}; }
  WeightView weight() const { return {.view = w.view, .layout = layout}; }
  // Element k of each row of X, and of each column of the weight, one after another.
  std::vector<double> rows() const {
    std::vector<double> all;
    for (std::int64_t i = 0; i < desc.m; ++i) {
      for (std::int64_t k = 0; k < desc.k; ++k)
        all.push_back(x_transposed ? at(x.view, k, i) : at(x.view, i, k));
    }
    return all;
  }
  std::vector<double> columns() const {
    std::vector<double> all;
    for (std::int64_t j = 0; j < desc.n; ++j) {
      for (std::int64_t k = 0; k < desc.k; ++k)
        all.push_back(layout == WeightLayout::out_in ? at(w.view, j, k) : at(w.view, k, j));
    }
    return all;
  }

  GemmDesc desc;
  Matrix x;
  Matrix w;
  WeightLayout layout;
  bool x_transposed;
};

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
        ++done;
        const bool transposed = done % 2 == 0;
        const Problem p(desc, done % 3 == 0 ? WeightLayout::in_out : WeightLayout::out_in,
                        transposed);
        Matrix y(out, desc.m, desc.n, 5);
        const Matrix before(out, desc.m, desc.n, 5);
        const Matrix bias(done % 2 == 0 ? Dtype::f32 : Dtype::bf16, 1, desc.n, 6);
        select(desc).run({.x = p.input(), .weight = p.weight(), .out = y.view, .bias = bias.view});
        const ConstTensorView bias_view = bias.view;
        expect_product(p, y.view, &bias_view, nullptr);

        Matrix sum(out, desc.m, desc.n, 5);
        select(desc).run(
            {.x = p.input(), .weight = p.weight(), .out = sum.view, .accumulate = true});
        const ConstTensorView before_view = before.view;
        expect_product(p, sum.view, nullptr, &before_view);
      }
    }
  }
  if (done == 0) GTEST_SKIP() << "this machine has no " << GetParam();
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
      const GemmDesc desc = {.m = 1 + below(130 / share),
                             .n = 1 + below(300 / share),
                             .k = (1 + below(700 / share / k_step)) * k_step,
                             .x = dtype,
                             .weight = dtype,
                             .out = Dtype::f32};
      if (!can(desc)) continue;
      const Problem p(desc, round % 2 == 0 ? WeightLayout::out_in : WeightLayout::in_out,
                      round % 3 == 0);
      const PackedWeight packed(p.weight(), 1 + round % 2);
      Matrix whole(Dtype::f32, desc.m, desc.n, 5);
      select(desc, 1).run({.x = p.input(), .weight = packed, .out = whole.view});
      expect_product(p, whole.view, nullptr, nullptr);
      PackedInput ready;
      select(desc, 2).pack(p.input(), ready);
      for (int cut = 0; cut < 8; ++cut) {
        const std::int64_t any_row = below(desc.m);
        const std::int64_t row = cut % 2 == 0 ? any_row : any_row / 16 * 16;
        const std::int64_t col = below(desc.n);
        const Window window = {.rows = {row, row + 1 + below(desc.m - row)},
                               .columns = {col, col + 1 + below(desc.n - col)}};
        Matrix part(Dtype::f32, window.rows.end - row, window.columns.end - col, 7);
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
    if (!can(desc)) GTEST_SKIP() << "this machine has no " << GetParam();
    const Problem p(desc, WeightLayout::in_out, transposed);
    Matrix y(Dtype::f32, desc.m, desc.n, 5);
    select(desc, 2).run({.x = p.input(), .weight = p.weight(), .out = y.view});
    expect_product(p, y.view, nullptr, nullptr);
  }
}

TEST_P(ProductsOfKernels, TellOfEveryTileOnce) {
  const GemmDesc desc = {
      .m = 70, .n = 200, .k = 33, .x = dtype(), .weight = dtype(), .out = Dtype::f32};
  if (!can(desc)) GTEST_SKIP() << "this machine has no " << GetParam();
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
  const GemmDesc desc = {.m = 21, .n = 90, .k = 33, .x = dtype(), .weight = dtype()};
  if (!can(desc)) GTEST_SKIP() << "this machine has no " << GetParam();
  const Problem p(desc);
  Matrix place(Dtype::bf16, 30, 120, 5);
  const Matrix before(Dtype::bf16, 30, 120, 5);
  select(desc).run({.x = p.input(),
                    .weight = p.weight(),
                    .out = place.view.row_range(4, 25).column_range(7, 97)});
  EXPECT_TRUE(tensor::same_bits(place.view.row_range(0, 4), before.view.row_range(0, 4)));
  EXPECT_TRUE(tensor::same_bits(place.view.row_range(25, 30), before.view.row_range(25, 30)));
  EXPECT_TRUE(tensor::same_bits(place.view.column_range(0, 7), before.view.column_range(0, 7)));
  EXPECT_TRUE(
      tensor::same_bits(place.view.column_range(97, 120), before.view.column_range(97, 120)));
}

INSTANTIATE_TEST_SUITE_P(Backends, Products, all_backends());
INSTANTIATE_TEST_SUITE_P(Kernels, ProductsOfKernels, all_kernels());

template <class Call>
std::string refusal_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "nothing was refused";
}

const void* byte_after(const void* data) { return static_cast<const std::byte*>(data) + 1; }

TEST(Gemm, RefusesOutsThatAreNotApart) {
  const GemmDesc desc = {.m = 4, .n = 6, .k = 5};
  const Problem p(desc);
  Gemm gemm = select_gemm(desc);
  const Matrix y(Dtype::bf16, 5, 6);
  std::vector<TensorView> outs = {y.view.row_range(0, 2), y.view.row_range(1, 3)};
  GemmCall call = {.x = p.input(), .weight = p.weight(), .outs = outs};
  EXPECT_EQ(refusal_of([&] { gemm.run(call); }), "matmul: outs 0 and 1 overlap");
  outs[1] = y.view.row_range(2, 4);
  gemm.run(call);
  call.out = y.view.row_range(0, 4);
  EXPECT_EQ(refusal_of([&] { gemm.run(call); }), "matmul: both out and outs say where to write");
}

TEST(Gemm, RefusesWhatDoesNotFit) {
  const GemmDesc desc = {.m = 4, .n = 6, .k = 5};
  const Problem p(desc);
  Gemm gemm = select_gemm(desc);
  const Matrix y(Dtype::bf16, 4, 6);
  const GemmCall good = {.x = p.input(), .weight = p.weight(), .out = y.view};
  gemm.run(good);
  const auto says = [&](auto&& spoil, const std::string& sentence) {
    GemmCall bad = good;
    spoil(bad);
    EXPECT_NE(refusal_of([&] { gemm.run(bad); }).find(sentence), std::string::npos)
        << refusal_of([&] { gemm.run(bad); });
  };
  says([&](GemmCall& c) { c.x.view.cols = 4; },
       "matmul: x is 4 x 4 but the product was made for k=5");
  says([&](GemmCall& c) { c.x.view.dtype = Dtype::f16; },
       "matmul: x is f16 but the product was made for bf16");
  says([&](GemmCall& c) { c.x.view.data = nullptr; }, "matmul: x is 4 x 5 but its data is null");
  says([&](GemmCall& c) { c.weight = WeightView{p.w.view, WeightLayout::in_out}; },
       "matmul: weight is 6 x 5 (in_out) but the product was made for n=6 k=5");
  says([&](GemmCall& c) { c.out.rows = 3; }, "matmul: out is 3 x 6 but the window is 4 x 6");
  says([&](GemmCall& c) { c.out.dtype = Dtype::f16; }, "matmul: out is f16");
  says([&](GemmCall& c) { c.window.columns = {2, 9}; },
       "matmul: the window's columns 2 to 9 are not within the product's 6");
  says([&](GemmCall& c) { c.bias = p.x.view.row_range(0, 1); }, "matmul: bias is 1 x 5");
  says([&](GemmCall& c) { c.out.data = p.x.view.data; }, "matmul: out overlaps x");
  says([&](GemmCall& c) { c.x.view.data = byte_after(c.x.view.data); }, "matmul: x");
  says([&](GemmCall& c) { c.out.data = static_cast<std::byte*>(c.out.data) + 1; }, "matmul: out");
  says([&](GemmCall& c) { c.out.data = nullptr; }, "matmul: out is 4 x 6 but its data is null");
  says([&](GemmCall& c) { c.out.row_stride = 5; }, "matmul: out");
  says([&](GemmCall& c) { c.x.view.row_stride = 4; }, "matmul: x");
  says([&](GemmCall& c) { std::get<WeightView>(c.weight).view.data = nullptr; },
       "matmul: weight is 6 x 5 but its data is null");
  says(
      [&](GemmCall& c) {
        auto& w = std::get<WeightView>(c.weight);
        w.view.data = byte_after(w.view.data);
      },
      "matmul: weight");
  says(
      [&](GemmCall& c) {
        c.bias = {.data = nullptr, .dtype = Dtype::f32, .rows = 1, .cols = 6, .row_stride = 6};
      },
      "matmul: bias is 1 x 6 but its data is null");
  PackedWeight left({.view = p.w.view, .layout = WeightLayout::out_in});
  const PackedWeight moved = std::move(left);
  // NOLINTNEXTLINE(bugprone-use-after-move): that is the mistake
  says([&](GemmCall& c) { c.weight = std::cref(left); }, "matmul: weight has been moved");
  says([&](GemmCall& c) { c.on_tile = [&](const Tile&) { gemm.run(good); }; },
       "matmul: this Gemm is running");
  says([&](GemmCall& c) { c.weight = WeightView{p.w.view, static_cast<WeightLayout>(7)}; },
       "matmul: the weight");
  // The weight's last element is the first of `out`; one place further on they are apart.
  const Matrix shared(Dtype::bf16, 12, 5);
  GemmCall beside = good;
  beside.weight = WeightView{shared.view.row_range(0, 6), WeightLayout::out_in};
  beside.out.data = shared.view.column_range(5, 6).row(5);
  gemm.run(beside);
  says(
      [&](GemmCall& c) {
        c.weight = beside.weight;
        c.out.data = shared.view.column_range(4, 5).row(5);
      },
      "matmul: out overlaps weight");
  says([&](GemmCall& c) { c.bias = y.view.row_range(3, 4); }, "matmul: out overlaps bias");
  PackedInput packed;
  says([&](GemmCall& c) { c.packed_x = &packed; },
       "matmul: packed_x has 0 rows of k=0 but x has 4 of k=5");
  select_gemm(desc, {.backend = "reference"}).pack(p.input(), packed);
  if (gemm.backend() != "reference") {
    says([&](GemmCall& c) { c.packed_x = &packed; },
         "matmul: packed_x was packed by a product of another backend or scheme");
  }
  gemm.pack(p.input(), packed);
  EXPECT_EQ(packed.rows(), 4);
  EXPECT_EQ(packed.k(), 5);
  PackedInput stays = std::move(packed);
  // NOLINTNEXTLINE(bugprone-use-after-move): that is the mistake
  says([&](GemmCall& c) { c.packed_x = &packed; }, "matmul: packed_x has been moved");
  EXPECT_EQ(packed.rows(), 0);
  EXPECT_NE(refusal_of([&] { gemm.pack(p.input(), packed); }).find("matmul: packed_x has been"),
            std::string::npos);
  packed = std::move(stays);
  EXPECT_NE(refusal_of([&] {
              gemm.pack({p.x.view.column_range(0, 3)}, packed);
            }).find("matmul: x is 4 x 3 but the product was made for k=5"),
            std::string::npos);
  EXPECT_NE(refusal_of([&] {
              PackedWeight({.view = p.w.view, .layout = WeightLayout::out_in}, -1);
            }).find("packed weight: threads=-1 is not between 0 and 1024"),
            std::string::npos);
  EXPECT_NE(refusal_of([] {
              select_gemm({.m = 1, .n = 1, .k = 1}, {.threads = 1025});
            }).find("matmul: threads=1025 is not between 0 and 1024"),
            std::string::npos);
  EXPECT_NE(refusal_of([] {
              PackedWeight({.view = Matrix(Dtype::s8, 4, 4).view, .layout = WeightLayout::out_in});
            }).find("which needs scales"),
            std::string::npos);
  EXPECT_NE(refusal_of([] {
              select_gemm({.m = 1, .n = 1, .k = 1}, {.backend = "mkl"});
            }).find("there is no backend mkl; there are amx, vector, xsmm, reference"),
            std::string::npos);
  EXPECT_NE(refusal_of([] {
              select_gemm({.m = 1, .n = 1, .k = 1, .x = Dtype::s8});
            }).find("matmul: x is s8"),
            std::string::npos);
  EXPECT_NE(refusal_of([] { select_gemm({.m = 1, .n = -1, .k = 1}); }).find("n=-1"),
            std::string::npos);
}

TEST(Gemm, TakesColumnsOfOneMatrixForXAndForOut) {
  const GemmDesc desc = {
      .m = 7, .n = 5, .k = 6, .x = Dtype::f32, .weight = Dtype::f32, .out = Dtype::f32};
  const Problem p(desc);
  const Matrix apart(Dtype::f32, 7, 5);
  Gemm gemm = select_gemm(desc);
  GemmCall call = {.x = p.input(), .weight = p.weight(), .out = apart.view};
  gemm.run(call);
  const Matrix both(Dtype::f32, 7, 11);
  const TensorView x = both.view.column_range(5, 11);
  for (std::int64_t i = 0; i < desc.m; ++i) std::memcpy(x.row(i), p.x.view.row(i), x.row_bytes());
  call.x = {x};
  call.out = both.view.column_range(0, 5);
  gemm.run(call);
  EXPECT_TRUE(tensor::same_bits(call.out, apart.view));
  call.out = both.view.column_range(1, 6);  // x's first column too
  EXPECT_EQ(refusal_of([&] { gemm.run(call); }), "matmul: out overlaps x");
}

TEST(Gemm, IsDescribedByText) {
  const GemmDesc desc = {.m = 8, .n = 4096, .k = 11, .x = Dtype::f16, .weight = Dtype::f32};
  EXPECT_EQ(name(desc), "m=8 n=4096 k=11 x=f16 w=f32 out=bf16");
  EXPECT_EQ(parse_gemm(name(desc)), desc);
  EXPECT_EQ(parse_gemm("k=11 w=f32  m=8 x=f16 n=4096"), desc);
  for (const char* bad :
       {"", "m=1 n=2", "m=1 n=2 k=x", "m=1 n=2 k=-3", "m=1 n=2 k=3 x=s8", "m=1 n=2 k=3 x=f64",
        "m=1 n=2 k=3 q", "m=1 n=2 k=3 m=4", "m=1 n=562949953421312 k=1", "m n k",
        "m=1 n=2 k=3 =", "m=99999999999999999999 n=1 k=1"}) {
    EXPECT_NE(refusal_of([&] { parse_gemm(bad); }), "nothing was refused") << bad;
  }
}

TEST(Gemm, WalksFromTheBestToTheReference) {
  const auto walk = explain_gemm({.m = 1, .n = 1, .k = 1, .x = Dtype::f32});
  EXPECT_EQ(walk.front().backend, "amx");
  EXPECT_EQ(walk.front().refusal, "x and the weight are not both bf16");
  EXPECT_EQ(walk.back().backend, "reference");
  EXPECT_TRUE(walk.back().refusal.empty());
}

}  // namespace
}  // namespace plait
