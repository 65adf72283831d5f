// When a product copies the rows of X although its kernel can read them where they are.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>

#include "gemm/l2_blocking.h"
#include "gemm/product.h"
#include "gemm/vector/factory.h"
#include "plait/packed_weight.h"
#include "tensor/fill.h"

namespace plait::gemm {
namespace {

constexpr std::int64_t kCopiedRows = 200;  // more than one block of them
constexpr std::int64_t kColumns = 2048;

// The vector kernel, blocked for a second-level cache of this many bytes.
class ForCache final : public TileKernel {
 public:
  explicit ForCache(long bytes) : bytes_(bytes) {}

  const char* name() const override { return kernel_->name(); }
  Dtype operand() const override { return kernel_->operand(); }
  RowForm row_form() const override { return kernel_->row_form(); }
  int max_rows() const override { return kernel_->max_rows(); }
  Blocking blocking() const override {
    return fill_l2({.rows = kernel_->max_rows(), .panels = 2, .k = 256, .few = 4}, Dtype::f32,
                   bytes_);
  }
  void multiply(const TileCall& call) const override { kernel_->multiply(call); }
  bool adds_nodes() const override { return kernel_->adds_nodes(); }
  bool rounds() const override { return kernel_->rounds(); }

 private:
  std::unique_ptr<TileKernel> kernel_ = vector::create(Dtype::f32);
  long bytes_;
};

class RowCopies : public testing::Test {
 protected:
  explicit RowCopies(std::int64_t k = 1024)
      : x_(Buffer::for_tensor(Dtype::f32, kCopiedRows, k + 16)),
        w_(Buffer::for_tensor(Dtype::f32, kColumns, k)) {
    tensor::fill_random(x_.view(Dtype::f32, kCopiedRows, k + 16), 1);
    tensor::fill_random(w_.view(Dtype::f32, kColumns, k), 2);
  }

  // The bytes of copied rows of a product by so many columns, and its results in `out`.
  std::size_t copied(long cache, std::int64_t columns, std::int64_t stride = 1024) {
    constexpr std::int64_t kDepth = 1024;
    const ForCache kernel(cache);
    out_ = Buffer::for_tensor(Dtype::f32, kCopiedRows, columns);
    TensorView x = x_.view(Dtype::f32, kCopiedRows, stride);
    x.cols = kDepth;
    const PackedWeight weight(
        WeightView{w_.view(Dtype::f32, columns, kDepth), WeightLayout::out_in});
    const GemmCall call = {
        .x = {.view = x}, .weight = weight, .out = out_.view(Dtype::f32, kCopiedRows, columns)};
    const Depth depth = {.k = kDepth};
    const Task task = {.call = call,
                       .rows = {0, kCopiedRows},
                       .columns = {0, columns},
                       .depth = depth,
                       .leaves = Leaves(depth)};
    Workspace workspace;
    Product(kernel, task, workspace).run();
    return workspace.rows.bytes();
  }

  Buffer x_;
  Buffer w_;
  Buffer out_;
};

TEST_F(RowCopies, AreMadeOfRowsThatShareSetsOfASmallCache) {
  EXPECT_GT(copied(512L << 10, kColumns), std::size_t{kCopiedRows} * 4096);
}

TEST_F(RowCopies, AreNotMadeForALargeCache) { EXPECT_EQ(copied(1L << 20, kColumns), 0U); }

TEST_F(RowCopies, AreNotMadeForFewPanels) { EXPECT_EQ(copied(512L << 10, 512), 0U); }

TEST_F(RowCopies, AreNotMadeOfRowsThatLieInSetsOfTheirOwn) {
  EXPECT_EQ(copied(512L << 10, kColumns, 1024 + 16), 0U);
}

TEST_F(RowCopies, AndShorterBlocksChangeNoBit) {
  copied(1L << 20, kColumns);
  const Buffer want = std::move(out_);
  copied(512L << 10, kColumns);
  EXPECT_EQ(std::memcmp(want.data(), out_.data(), want.bytes()), 0);
}

}  // namespace
}  // namespace plait::gemm
