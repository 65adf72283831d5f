// Refusals of a product, and their words.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "gemm/matrix.h"
#include "gemm/problem.h"
#include "plait/gemm.h"
#include "tensor/compare.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

const void* byte_after(const void* data) { return static_cast<const std::byte*>(data) + 1; }

TEST(Gemm, RefusesOutsThatAreNotApart) {
  const GemmDesc desc = {.m = 4, .n = 6, .k = 5};
  const Problem p(desc);
  Gemm gemm = select_gemm(desc);
  const Matrix y(Dtype::bf16, 5, 6);
  std::vector<TensorView> outs = {y.view.row_range(0, 2), y.view.row_range(1, 3)};
  GemmCall call = {.x = p.input(), .weight = p.weight(), .outs = outs};
  EXPECT_NE(
      sentence_of([&] { gemm.run(call); }).find("matmul: outs 0 and 1 overlap: 2 x 6 bf16 at 0x"),
      std::string::npos);
  outs[1] = y.view.row_range(2, 4);
  gemm.run(call);
  call.out = y.view.row_range(0, 4);
  EXPECT_EQ(sentence_of([&] { gemm.run(call); }), "matmul: both out and outs say where to write");
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
    EXPECT_NE(sentence_of([&] { gemm.run(bad); }).find(sentence), std::string::npos)
        << sentence << ": " << sentence_of([&] { gemm.run(bad); });
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
  says([&](GemmCall& c) { c.bias = p.x.view.row_range(0, 1); },
       "matmul: bias is 1 x 5 but the product has 6 columns");
  says([&](GemmCall& c) { c.bias = Matrix(Dtype::s8, 1, 6).view; },
       "matmul: bias is s8; it is one of f32, bf16 and f16");
  says([&](GemmCall& c) { c.out.data = p.x.view.data; }, "matmul: out overlaps x");
  says([&](GemmCall& c) { c.x.view.data = byte_after(c.x.view.data); },
       "is not aligned to 2 bytes");
  says([&](GemmCall& c) { c.out.data = static_cast<std::byte*>(c.out.data) + 1; },
       "matmul: out is bf16 but its data at ");
  says([&](GemmCall& c) { c.out.data = nullptr; }, "matmul: out is 4 x 6 but its data is null");
  says([&](GemmCall& c) { c.out.row_stride = 5; },
       "matmul: out has 6 columns but a row stride of 5");
  says([&](GemmCall& c) { c.x.view.row_stride = 4; },
       "matmul: x has 5 columns but a row stride of 4");
  WeightView other = p.weight();
  other.view.data = nullptr;
  says([&](GemmCall& c) { c.weight = other; }, "matmul: weight is 6 x 5 but its data is null");
  other.view.data = byte_after(p.w.view.data);
  says([&](GemmCall& c) { c.weight = other; }, "matmul: weight is bf16 but its data at ");
  says(
      [&](GemmCall& c) {
        c.bias = {.data = nullptr, .dtype = Dtype::f32, .rows = 1, .cols = 6, .row_stride = 6};
      },
      "matmul: bias is 1 x 6 but its data is null");
  PackedWeight left({.view = p.w.view, .layout = WeightLayout::out_in});
  const PackedWeight moved = std::move(left);
  // NOLINTNEXTLINE(bugprone-use-after-move): that is the mistake
  says([&](GemmCall& c) { c.weight = left; }, "matmul: weight has been moved");
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
  EXPECT_NE(sentence_of([&] { gemm.pack(p.input(), packed); }).find("matmul: packed_x has been"),
            std::string::npos);
  packed = std::move(stays);
  EXPECT_NE(sentence_of([&] {
              gemm.pack({p.x.view.column_range(0, 3)}, packed);
            }).find("matmul: x is 4 x 3 but the product was made for k=5"),
            std::string::npos);
  EXPECT_NE(sentence_of([&] {
              PackedWeight({.view = p.w.view, .layout = WeightLayout::out_in}, -1);
            }).find("packed weight: threads=-1 is not between 0 and 1024"),
            std::string::npos);
  EXPECT_NE(sentence_of([] {
              select_gemm({.m = 1, .n = 1, .k = 1}, {.threads = 1025});
            }).find("matmul: threads=1025 is not between 0 and 1024"),
            std::string::npos);
  EXPECT_NE(sentence_of([] {
              PackedWeight({.view = Matrix(Dtype::s8, 4, 4).view, .layout = WeightLayout::out_in});
            }).find("which needs scales"),
            std::string::npos);
  EXPECT_NE(sentence_of([] {
              select_gemm({.m = 1, .n = 1, .k = 1}, {.backend = "mkl"});
            }).find("there is no backend mkl; there are amx, vector, reference"),
            std::string::npos);
  EXPECT_NE(sentence_of([] {
              select_gemm({.m = 1, .n = 1, .k = 1, .x = Dtype::s8});
            }).find("matmul: x is s8"),
            std::string::npos);
  EXPECT_NE(sentence_of([] { select_gemm({.m = 1, .n = -1, .k = 1}); }).find("n=-1"),
            std::string::npos);
}

// A matrix of one row needs no stride: there is no next row.
TEST(Gemm, TakesAnyStrideOfOneRow) {
  const GemmDesc desc = {.m = 1, .n = 1, .k = 64};
  Problem p(desc);
  const Matrix want(Dtype::bf16, 1, 1);
  select_gemm(desc).run({.x = p.input(), .weight = p.weight(), .out = want.view});
  for (const std::int64_t stride : {INT64_MIN, std::int64_t{0}, INT64_MAX}) {
    Matrix got(Dtype::bf16, 1, 1, 3);
    got.view.row_stride = stride;
    p.x.view.row_stride = stride;
    p.w.view.row_stride = stride;
    select_gemm(desc).run({.x = p.input(), .weight = p.weight(), .out = got.view});
    EXPECT_TRUE(tensor::same_bits(got.view, want.view)) << stride;
  }
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
  EXPECT_NE(sentence_of([&] { gemm.run(call); }).find("matmul: out overlaps x: 7 x 5 f32 at 0x"),
            std::string::npos);
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
    EXPECT_NE(sentence_of([&] { parse_gemm(bad); }), "nothing was refused") << bad;
  }
}

}  // namespace
}  // namespace plait
