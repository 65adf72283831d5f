// Parts and ways of a product that give the bits of the whole one (plait/gemm.h), for every backend
// that has blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gemm/backend_test.h"
#include "gemm/matrix.h"
#include "plait/gemm.h"
#include "tensor/compare.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

constexpr Dtype kFloats[] = {Dtype::f32, Dtype::bf16, Dtype::f16};  // NOLINT(*-avoid-c-arrays)

class ProductParts : public BackendTest {
 protected:
  ProductParts() : BackendTest(23) {}

  Range range(std::int64_t count) {
    const std::int64_t begin = below(count);
    return {begin, begin + 1 + below(count - begin)};
  }
  // Every other window begins at one of the two ends, where the other does not.
  GemmWindow window(const GemmDesc& desc, int round) {
    GemmWindow window = {.rows = range(desc.m), .columns = range(desc.n)};
    if (round % 4 == 1) window.rows.begin = 0;
    if (round % 4 == 3) window.columns.begin = 0;
    return window;
  }
};

ConstTensorView part_of(const Matrix& whole, const GemmWindow& window) {
  return whole.view.row_range(window.rows.begin, window.rows.end)
      .column_range(window.columns.begin, window.columns.end);
}

void copy(const ConstTensorView& from, const TensorView& to) {
  for (std::int64_t i = 0; i < from.rows; ++i)
    std::memcpy(to.row(i), from.row(i), from.row_bytes());
}

// With narrow windows, an X that fits into no cache is prefetched. Parts of its rows are not.
TEST_P(ProductParts, RowsFromMemoryGiveTheBitsOfThoseFromACache) {
  if (GetParam() == "reference") GTEST_SKIP() << "asks for nothing, and takes long";
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const std::int64_t k = 13824 / static_cast<std::int64_t>(size_of(dtype));  // 8.06 MiB
    const GemmDesc desc = {
        .m = 611, .n = 70, .k = k, .x = dtype, .weight = dtype, .out = Dtype::f32};
    if (!can(desc)) continue;
    const Matrix x(dtype, desc.m, desc.k, 1);
    const Matrix w(dtype, desc.n, desc.k, 2);
    const Matrix whole(Dtype::f32, desc.m, desc.n, 3);
    const Matrix parts(Dtype::f32, desc.m, desc.n, 4);
    const PackedWeight packed(WeightView{w.view, WeightLayout::out_in}, 1);
    const GemmCall call = {.x = {x.view}, .weight = packed, .out = whole.view};
    select(desc, 1).run(call);
    for (const Range rows : {Range{0, 250}, Range{250, desc.m}}) {
      GemmCall part = call;
      part.out = parts.view.row_range(rows.begin, rows.end);
      part.window = {.rows = rows, .columns = {0, desc.n}};
      select(desc, 1).run(part);
    }
    EXPECT_TRUE(tensor::same_bits(parts.view, whole.view)) << name(dtype);
  }
}

// The bias begins at the product's first column, and the values that are added to begin at the
// window's first element.
TEST_P(ProductParts, WindowsTakeTheirOwnBiasAndWhatIsThere) {
  const std::int64_t share = GetParam() == "reference" ? 3 : 1;
  int done = 0;
  for (const Dtype dtype : kFloats) {
    for (const Dtype out : kFloats) {
      const GemmDesc desc = {
          .m = 75 / share, .n = 210, .k = 37, .x = dtype, .weight = dtype, .out = out};
      if (!can(desc)) continue;
      const Matrix x(dtype, desc.m, desc.k, 1);
      const Matrix w(dtype, desc.n, desc.k, 2);
      const Matrix bias(done++ % 2 == 0 ? Dtype::f32 : Dtype::bf16, 1, desc.n, 3);
      const Matrix before(out, desc.m, desc.n, 4);
      const PackedWeight packed(WeightView{w.view, WeightLayout::out_in}, 1);
      for (const bool accumulate : {false, true}) {
        const Matrix whole(out, desc.m, desc.n, 4);
        GemmCall call = {.x = {x.view},
                         .weight = packed,
                         .out = whole.view,
                         .bias = bias.view,
                         .accumulate = accumulate};
        select(desc, 1).run(call);
        for (int round = 0; round < 12; ++round) {
          call.window = window(desc, round);
          const ConstTensorView want = part_of(whole, call.window);
          const Matrix part(out, want.rows, want.cols);
          copy(part_of(before, call.window), part.view);
          call.out = part.view;
          if (round % 2 == 0) call.weight = packed;
          if (round % 2 == 1) call.weight = WeightView{w.view, WeightLayout::out_in};
          select(desc, 1 + round % 3).run(call);
          ASSERT_TRUE(tensor::same_bits(part.view, want))
              << name(desc) << " accumulate " << accumulate << " from row "
              << call.window.rows.begin << ", column " << call.window.columns.begin;
        }
      }
    }
  }
  if (done == 0) GTEST_SKIP() << refusal_of(GetParam());
}

// The rows of a window go to several matrices, which end within tiles; some are empty.
TEST_P(ProductParts, RowsMayGoToSeveralPlaces) {
  constexpr std::int64_t kColumns = 130;
  int done = 0;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const GemmDesc desc = {
        .m = 121, .n = kColumns, .k = 70, .x = dtype, .weight = dtype, .out = dtype};
    if (!can(desc)) continue;
    ++done;
    const Matrix x(dtype, desc.m, desc.k, 1);
    const Matrix w(dtype, kColumns, desc.k, 2);
    const PackedWeight packed(WeightView{w.view, WeightLayout::out_in}, 1);
    const GemmWindow window = {.rows = {3, 120}, .columns = {10, 129}};
    const Matrix whole(dtype, 117, 119);
    select(desc, 2).run({.x = {x.view}, .weight = packed, .out = whole.view, .window = window});
    std::vector<Matrix> places;
    std::vector<TensorView> outs;
    for (const std::int64_t rows : {0, 1, 40, 0, 33, 43, 0}) {
      places.emplace_back(dtype, rows, 119);
      outs.push_back(places.back().view);
    }
    select(desc, 2).run({.x = {x.view}, .weight = packed, .window = window, .outs = outs});
    std::int64_t row = 0;
    for (const TensorView& out : outs) {
      ASSERT_TRUE(tensor::same_bits(out, whole.view.row_range(row, row + out.rows)))
          << name(dtype) << " from row " << row;
      row += out.rows;
    }
    outs.pop_back();
    outs.back().rows -= 1;
    EXPECT_EQ(
        sentence_of([&] {
          select(desc, 1).run({.x = {x.view}, .weight = packed, .window = window, .outs = outs});
        }),
        "matmul: the 6 outs have 116 rows together but the window has 117");
  }
  if (done == 0) GTEST_SKIP() << refusal_of(GetParam());
}

// A view is packed in chunks of k for few rows, as a whole for some, and once for more than a
// superblock. Here k is long enough for three chunks of the largest, and its last pair is half
// empty. The rows are compared with those of one whole product by a packed weight. They take every
// path with as little work as possible, because sanitizers are slow.
TEST_P(ProductParts, ViewsOfAWeightGiveTheBitsOfAPackedOne) {
  if (GetParam() == "reference") GTEST_SKIP() << "has no blocks";
  constexpr std::int64_t kColumns = 130;
  constexpr std::int64_t kDepth = 2499;
  const std::vector<std::int64_t> rows_by_outputs = {1, 130, 300, 1100};
  const std::vector<std::int64_t> rows_by_inputs = {1, 40, 600};
  int done = 0;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
      const bool out_in = layout == WeightLayout::out_in;
      const std::vector<std::int64_t>& all_rows = out_in ? rows_by_outputs : rows_by_inputs;
      const GemmDesc desc = {.m = all_rows.back(),
                             .n = kColumns,
                             .k = kDepth,
                             .x = dtype,
                             .weight = dtype,
                             .out = Dtype::f32};
      if (!can(desc)) continue;
      ++done;
      const Matrix x(dtype, desc.m, kDepth, 1);
      const Matrix w(dtype, out_in ? kColumns : kDepth, out_in ? kDepth : kColumns, 2);
      const WeightView weight = {.view = w.view, .layout = layout};
      const Matrix whole(Dtype::f32, desc.m, kColumns);
      const PackedWeight packed(weight, 2);
      select(desc, 2).run({.x = {x.view}, .weight = packed, .out = whole.view});
      for (const std::int64_t rows : all_rows) {
        const Matrix y(Dtype::f32, rows, kColumns);
        select(desc, rows == 40 ? 2 : 1)
            .run({.x = {x.view.row_range(0, rows)}, .weight = weight, .out = y.view});
        ASSERT_TRUE(tensor::same_bits(y.view, whole.view.row_range(0, rows)))
            << name(dtype) << ' ' << name(layout) << ' ' << rows << " rows";
      }
    }
  }
  if (done == 0) GTEST_SKIP() << refusal_of(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Backends, ProductParts, all_backends(), name_of);

}  // namespace
}  // namespace plait
