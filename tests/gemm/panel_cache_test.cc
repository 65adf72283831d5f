#include "plait/panel_cache.h"

#include <gtest/gtest.h>

#include <string>

#include "base/check.h"
#include "gemm/backend_test.h"
#include "gemm/matrix.h"
#include "gemm/panel_memory.h"
#include "tensor/compare.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

class CachedPanels : public BackendTest {
 protected:
  // Enough rows that panels are packed for them: fewer are multiplied where the weight lies.
  static constexpr std::int64_t kRows = 12;

  // The reference reads a weight where it is, and has nothing to keep.
  static bool keeps() { return backend() != "reference"; }

  static GemmDesc desc_of(std::int64_t m, std::int64_t n, std::int64_t k) {
    return {.m = m, .n = n, .k = k, .x = dtype(), .weight = dtype(), .out = Dtype::f32};
  }
};

// Random runs of rows and columns, by one thread and by several: the first to come to a panel packs
// it, the others read it.
TEST_P(CachedPanels, ChangeNoBits) {
  for (int round = 0; round < 6; ++round) {
    const GemmDesc desc = desc_of(1 + below(90), 1 + below(400), 1 + below(300));
    if (!can(desc)) GTEST_SKIP() << refusal_of(GetParam());
    const Matrix x(desc.x, desc.m, desc.k, 1);
    const bool by_outputs = round % 2 == 0;
    const Matrix w(desc.weight, by_outputs ? desc.n : desc.k, by_outputs ? desc.k : desc.n, 2);
    const WeightView weight = {w.view, by_outputs ? WeightLayout::out_in : WeightLayout::in_out};
    Matrix whole(desc.out, desc.m, desc.n, 3);
    select(desc).run({.x = {x.view}, .weight = weight, .out = whole.view});
    PanelCache panels;
    for (int cut = 0; cut < 12; ++cut) {
      const std::int64_t row = below(desc.m);
      const std::int64_t column = below(desc.n);
      const GemmWindow window = {.rows = {row, row + 1 + below(desc.m - row)},
                                 .columns = {column, column + 1 + below(desc.n - column)}};
      Matrix part(desc.out, window.rows.end - row, window.columns.end - column, 4);
      select(desc, 1 + cut % 3)
          .run({.x = {x.view},
                .weight = weight,
                .out = part.view,
                .window = window,
                .panel_cache = &panels});
      EXPECT_TRUE(tensor::same_bits(
          part.view,
          whole.view.row_range(row, window.rows.end).column_range(column, window.columns.end)))
          << name(desc) << " rows " << row << " to " << window.rows.end << " columns " << column
          << " to " << window.columns.end;
    }
  }
}

// x and a plain weight [n, k], and calls that keep the weight's panels.
struct Problem {
  explicit Problem(const GemmDesc& desc)
      : x(desc.x, desc.m, desc.k, 1), w(desc.weight, desc.n, desc.k, 2) {}

  GemmCall call(const Matrix& out, PanelCache* panels) const {
    return {.x = {x.view},
            .weight = WeightView{w.view, WeightLayout::out_in},
            .out = out.view,
            .panel_cache = panels};
  }

  Matrix x;
  Matrix w;
};

// More rows than are packed at once, before and after some panels were kept.
TEST_P(CachedPanels, AreThereForManyRows) {
  const GemmDesc desc = desc_of(1100, 200, 24);
  if (!can(desc)) GTEST_SKIP() << refusal_of(GetParam());
  if (!keeps()) return;
  const Problem problem(desc);
  Gemm gemm = select(desc, 2);
  Matrix want(desc.out, desc.m, desc.n, 3);
  gemm.run(problem.call(want, nullptr));
  for (const std::int64_t columns_before : {std::int64_t{0}, std::int64_t{70}, desc.n}) {
    PanelCache panels;
    Matrix some(desc.out, kRows, columns_before, 4);
    GemmCall first = problem.call(some, &panels);
    first.window = {.rows = {0, kRows}, .columns = {0, columns_before}};
    gemm.run(first);
    Matrix got(desc.out, desc.m, desc.n, 5);
    gemm.run(problem.call(got, &panels));
    EXPECT_TRUE(tensor::same_bits(got.view, want.view)) << columns_before << " columns before";
  }
}

// A weight that changes without notice shows that its panels are kept at all.
TEST_P(CachedPanels, AreOfTheWeightThatWasThere) {
  const GemmDesc desc = desc_of(kRows, 70, 16);
  if (!can(desc)) GTEST_SKIP() << refusal_of(GetParam());
  const Problem problem(desc);
  Gemm gemm = select(desc);
  Matrix before(desc.out, desc.m, desc.n, 3);
  Matrix after(desc.out, desc.m, desc.n, 4);
  PanelCache panels;
  gemm.run(problem.call(before, &panels));
  tensor::fill_random(problem.w.view, 5);
  gemm.run(problem.call(after, &panels));
  EXPECT_EQ(static_cast<bool>(tensor::same_bits(after.view, before.view)), keeps());
  panels.forget();
  gemm.run(problem.call(after, &panels));
  EXPECT_FALSE(tensor::same_bits(after.view, before.view));
}

TEST_P(CachedPanels, AreOfOneWeightOnly) {
  const GemmDesc desc = desc_of(kRows, 9, 6);
  if (!can(desc)) GTEST_SKIP() << refusal_of(GetParam());
  if (!keeps()) return;
  const Problem problem(desc);
  const Matrix twin(desc.weight, desc.n, desc.k, 2);
  Matrix y(desc.out, desc.m, desc.n, 3);
  Gemm gemm = select(desc);
  PanelCache panels;
  GemmCall call = problem.call(y, &panels);
  gemm.run(call);
  call.weight = WeightView{twin.view, WeightLayout::out_in};
  const std::string dtype_name(name(dtype()));
  EXPECT_EQ(sentence_of([&] { gemm.run(call); }),
            base::sentence("matmul: panel_cache holds panels of the ", dtype_name, " weight at ",
                           problem.w.view.data, ", but the weight is the ", dtype_name, " one at ",
                           twin.view.data, "; forget() is for the next"));
  panels.forget();
  EXPECT_EQ(panels.held_bytes(), 0U);
  EXPECT_EQ(sentence_of([&] { gemm.run(call); }), "nothing was refused");
  const PanelCache moved = std::move(panels);
  // NOLINTNEXTLINE(bugprone-use-after-move): that is what is refused
  EXPECT_EQ(sentence_of([&] { gemm.run(call); }),
            "matmul: panel_cache has been moved to another PanelCache");
}

INSTANTIATE_TEST_SUITE_P(Backends, CachedPanels, all_kernels(), name_of);

TEST(PanelMemory, IsLentInTurns) {
  constexpr std::size_t kBytes = 3000;
  gemm::PanelMemory one(kBytes);
  std::byte* const first = one.data();
  {
    const gemm::PanelMemory beside(kBytes);
    EXPECT_NE(beside.data(), first);
  }
  one = {};
  EXPECT_EQ(one.bytes(), 0U);
  // The smallest that is large enough.
  const gemm::PanelMemory again(kBytes);
  const gemm::PanelMemory too(1);
  EXPECT_NE(again.data(), too.data());
  EXPECT_GE(too.bytes(), kBytes);
  // No idle buffer is as large as this one: those that lie there go.
  const gemm::PanelMemory large(2 * kBytes);
  EXPECT_GE(large.bytes(), 2 * kBytes);
}

}  // namespace
}  // namespace plait
