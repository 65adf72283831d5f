#include "plait/tensor_view.h"

#include <gtest/gtest.h>

#include <numeric>
#include <type_traits>
#include <vector>

#include "tensor/print.h"

namespace plait {
namespace {

static_assert(std::is_trivially_copyable_v<ConstTensorView>);
static_assert(std::is_convertible_v<TensorView, ConstTensorView>);
static_assert(!std::is_convertible_v<ConstTensorView, TensorView>);
static_assert(std::is_same_v<decltype(ConstTensorView{}.row(0)), const void*>);

// 5 rows of 7 floats, 10 apart; the element at (i, j) is 10·i + j.
class View : public testing::Test {
 protected:
  View() : numbers_(50) { std::iota(numbers_.begin(), numbers_.end(), 0.0F); }

  TensorView view() {
    return {.data = numbers_.data(), .dtype = Dtype::f32, .rows = 5, .cols = 7, .row_stride = 10};
  }

  static float first(const ConstTensorView& view, std::int64_t row) {
    return *static_cast<const float*>(view.row(row));
  }

 private:
  std::vector<float> numbers_;
};

TEST_F(View, FindsItsRowsByTheStride) {
  EXPECT_EQ(first(view(), 0), 0);
  EXPECT_EQ(first(view(), 4), 40);
}

TEST_F(View, CutsRowsAndColumnsWithoutCopying) {
  const TensorView part = view().row_range(1, 4).column_range(2, 5);
  EXPECT_EQ(part.rows, 3);
  EXPECT_EQ(part.cols, 3);
  EXPECT_EQ(first(part, 0), 12);
  EXPECT_EQ(first(part, 2), 32);
  EXPECT_EQ(first(part.column_range(1, 3), 1), 23);
  *static_cast<float*>(part.row(0)) = -1;
  EXPECT_EQ(first(view().column_range(2, 3), 1), -1);
}

TEST_F(View, CutsToNothing) {
  EXPECT_EQ(view().row_range(5, 5).rows, 0);
  EXPECT_EQ(view().column_range(7, 7).bytes(), 0);
}

TEST_F(View, CountsTheBytesOfItsElementsAlone) {
  EXPECT_EQ(view().bytes(), 5 * 7 * 4);
  EXPECT_EQ(view().row_bytes(), 7 * 4);
  EXPECT_EQ(TensorView({.dtype = Dtype::s8, .rows = 3, .cols = 5}).bytes(), 15);
}

TEST_F(View, KnowsWhetherItHasGaps) {
  EXPECT_FALSE(view().is_contiguous());
  EXPECT_TRUE(view().row_range(2, 3).is_contiguous());
  EXPECT_TRUE(view().column_range(3, 3).is_contiguous());
  EXPECT_TRUE(TensorView({.rows = 5, .cols = 10, .row_stride = 10}).is_contiguous());
}

TEST_F(View, HasNoDtypeUntilItIsTold) {
  EXPECT_EQ(TensorView{}.dtype, kNoDtype);
  EXPECT_EQ(TensorView({.data = view().data, .rows = 5, .cols = 7}).dtype, kNoDtype);
}

TEST_F(View, HasNoGapsWhereNoStrideIsGiven) {
  const TensorView dense = {.data = view().data, .dtype = Dtype::f32, .rows = 5, .cols = 7};
  EXPECT_EQ(dense.row_stride, 7);
  EXPECT_EQ(first(dense, 2), 14);
}

TEST(ViewOf, KnowsTheDtypeByThePointer) {
  std::vector<float> numbers(6, 1.0F);
  const std::vector<Bf16> constant(6);
  const TensorView view = TensorView::of(numbers.data(), 2, 3);
  EXPECT_EQ(view.dtype, Dtype::f32);
  EXPECT_EQ(view.rows, 2);
  EXPECT_EQ(view.cols, 3);
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_EQ(view.row(1), numbers.data() + 3);
  EXPECT_EQ(ConstTensorView::of(constant.data(), 3, 2).dtype, Dtype::bf16);
  EXPECT_EQ(ConstTensorView::of(numbers.data(), 3, 2).data, numbers.data());
  std::vector<std::int8_t> small(4);
  std::vector<F16> half(4);
  EXPECT_EQ(TensorView::of(small.data(), 2, 2).dtype, Dtype::s8);
  EXPECT_EQ(TensorView::of(half.data(), 2, 2).dtype, Dtype::f16);
}

TEST_F(View, KeepsDtypeAndDeviceWhenCutAndWhenReadOnly) {
  TensorView there = view();
  there.device = Device::cuda(1);
  const ConstTensorView part = there.row_range(0, 1).column_range(0, 1);
  EXPECT_EQ(part.device, Device::cuda(1));
  EXPECT_EQ(part.row_stride, 10);
}

TEST(Device, NamesAreParsedBackAndNothingElseIs) {
  EXPECT_EQ(name(kCpu), "cpu");
  EXPECT_EQ(name(Device::cuda(3)), "cuda:3");
  EXPECT_EQ(parse_device("cpu"), kCpu);
  EXPECT_EQ(parse_device("cuda"), Device::cuda(0));
  EXPECT_EQ(parse_device("cuda:3"), Device::cuda(3));
  for (const char* bad : {"", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:x", "cuda:99999999999"}) {
    EXPECT_FALSE(parse_device(bad)) << bad;
  }
}

}  // namespace
}  // namespace plait
