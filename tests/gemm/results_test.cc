#include "gemm/results.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "gemm/matrix.h"
#include "gemm/vector/factory.h"
#include "gemm/vector/sets.h"
#include "plait/packed_weight.h"

namespace plait::gemm {
namespace {

// A product of 3 rows and 150 columns, panels 0 to 2, of which rows 1 and 2 and columns 70 to 149
// are asked for.
class ResultsTest : public testing::Test {
 protected:
  static constexpr Range kRows = {1, 3};
  static constexpr Range kColumns = {70, 150};

  explicit ResultsTest(std::int64_t k = 8)
      : depth_{.k = k}, w_(Dtype::f32, 150, k), out_(Dtype::f32, 2, 80), kernel_(kernel()) {
    for (std::int64_t i = 0; i < 2; ++i) {
      for (std::int64_t j = 0; j < 80; ++j) put(i, j, -1);
    }
    call_.out = out_.view;
  }

  static std::unique_ptr<TileKernel> kernel() { return vector::create(vector::sets().back()); }

  Task task(Range columns = kColumns) const {
    return {.call = call_,
            .rows = kRows,
            .columns = columns,
            .depth = depth_,
            .leaves = Leaves(depth_),
            .bias = bias_,
            .threads = 1};
  }

  void put(std::int64_t i, std::int64_t j, float value) {
    static_cast<float*>(out_.view.row(i))[j] = value;
  }
  double got(std::int64_t i, std::int64_t j) const { return at(out_.view, i, j); }

  Depth depth_;
  Matrix w_;
  Matrix out_;
  GemmCall call_{.x = {}, .weight = WeightView{w_.view, WeightLayout::out_in}};
  const float* bias_ = nullptr;
  std::unique_ptr<TileKernel> kernel_;
};

// [2][64], each its row and column of the panel: 103 is row 1, column 3.
std::vector<float> numbered_sums() {
  std::vector<float> sums;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < kPanelColumns; ++j) sums.push_back(static_cast<float>(100 * i + j));
  }
  return sums;
}

TEST_F(ResultsTest, ATileIsWhatOfThePanelWasAskedFor) {
  const Task all = task();
  const Results results(all, *kernel_, nullptr);
  EXPECT_EQ(results.tile(1, kRows).columns, (Range{70, 128}));
  EXPECT_EQ(results.tile(2, kRows).columns, (Range{128, 150}));
  EXPECT_EQ(results.tile(2, kRows).rows, kRows);
}

TEST_F(ResultsTest, SumsGoToTheWindowsPlaces) {
  std::array<float, 150> bias{};
  bias[70] = 0.5F;
  bias_ = bias.data();
  const Task all = task();
  const Results results(all, *kernel_, nullptr);
  results.finish(results.tile(1, kRows), numbered_sums().data());
  EXPECT_EQ(got(0, 0), 6.5);  // column 70 is the panel's seventh
  EXPECT_EQ(got(0, 57), 63);
  EXPECT_EQ(got(0, 58), -1);  // of the next panel
  EXPECT_EQ(got(1, 1), 107);
}

TEST_F(ResultsTest, SumsAreAddedToWhatIsThere) {
  call_.accumulate = true;
  const Task all = task();
  const Results results(all, *kernel_, nullptr);
  results.finish(results.tile(2, kRows), numbered_sums().data());
  EXPECT_EQ(got(0, 58), -1);
  EXPECT_EQ(got(1, 79), 120);
  EXPECT_EQ(got(1, 57), -1);
}

TEST_F(ResultsTest, SumsGoFromOneMatrixToTheNext) {
  const Matrix first(Dtype::bf16, 1, 80);
  const std::array<TensorView, 2> outs = {first.view, out_.view.row_range(0, 1)};
  call_.outs = outs;
  const Task all = task();
  const Results results(all, *kernel_, nullptr);
  results.finish(results.tile(1, kRows), numbered_sums().data());
  EXPECT_EQ(at(first.view, 0, 0), 6);
  EXPECT_EQ(got(0, 0), 106);
  EXPECT_EQ(got(1, 0), -1);
}

TEST_F(ResultsTest, TheHookHearsOfTheTile) {
  std::vector<Tile> tiles;
  const Task quiet = task();
  const Results results(quiet, *kernel_, nullptr);
  results.tell_of(results.tile(1, kRows));  // without a hook
  call_.on_tile = [&](const Tile& tile) { tiles.push_back(tile); };
  results.tell_of(results.tile(1, kRows));
  ASSERT_EQ(tiles.size(), 1U);
  EXPECT_EQ(tiles[0].columns, (Range{70, 128}));
}

TEST_F(ResultsTest, AKernelThatCannotRoundWritesNothing) {
  if (kernel_->rounds()) GTEST_SKIP() << "it can";
  const Task all = task({64, 128});
  const Results results(all, *kernel_, nullptr);
  EXPECT_EQ(results.straight(results.tile(1, kRows)).data, nullptr);
}

TEST_F(ResultsTest, AKernelThatRoundsWritesWholeRowsOfSumsThatAreAll) {
  kernel_ = vector::create(Dtype::f32);
  if (!kernel_->rounds()) GTEST_SKIP() << "the best kernel here cannot round";
  const auto written = [&](Range columns) {
    const Task all = task(columns);
    const Results results(all, *kernel_, nullptr);
    return results.straight(results.tile(1, kRows)).data;
  };
  EXPECT_EQ(written({64, 128}), out_.view.data);
  EXPECT_EQ(written({64, 144}), out_.view.data);
  EXPECT_EQ(written({65, 128}), nullptr);
  EXPECT_EQ(written({0, 127}), nullptr);
  const std::array<float, 150> bias{};
  bias_ = bias.data();
  EXPECT_EQ(written({64, 128}), nullptr);
  bias_ = nullptr;
  call_.accumulate = true;
  EXPECT_EQ(written({64, 128}), nullptr);
  call_.accumulate = false;
  const std::array<TensorView, 2> outs = {out_.view.row_range(0, 1), out_.view.row_range(1, 2)};
  call_.outs = outs;
  EXPECT_EQ(written({64, 128}), nullptr);
  call_.outs = {};
  depth_.k = 0;
  EXPECT_EQ(written({64, 128}), nullptr);
}

// A single leaf is scaled at its end, two leaves are scaled one by one.
TEST_F(ResultsTest, ScalesWaitForTheEndOfTheLeafOrOfTheSum) {
  for (const std::int64_t k : {512, 1024}) {
    const Matrix w(Dtype::f32, 150, k);
    const WeightView view = {w.view, WeightLayout::out_in};
    const PackedWeight packed(quantize(view, *parse_quant_scheme("s8:channel")));
    depth_.k = k;
    call_.weight = packed;
    const Task all = task();
    ASSERT_EQ(all.leaves.count(), k / 512);
    const Results results(all, *kernel_, &packed);
    const float* scales = packed.scales(0, 1);
    EXPECT_EQ(results.leaf_scales(1), k == 512 ? nullptr : scales);
    results.finish(results.tile(1, kRows), std::vector<float>(2 * kPanelColumns, 1).data());
    EXPECT_EQ(static_cast<float>(got(0, 0)), k == 512 ? scales[6] : 1.0F);
  }
}

}  // namespace
}  // namespace plait::gemm
