#include "plait/weight.h"

#include <gtest/gtest.h>

#include <array>

namespace plait {
namespace {

TEST(WeightView, HasItsSizesWhereTheLayoutSays) {
  const std::array<float, 35> elements{};
  const ConstTensorView view = {
      .data = elements.data(), .dtype = Dtype::f32, .rows = 5, .cols = 7, .row_stride = 7};
  const WeightView out_in = {.view = view, .layout = WeightLayout::out_in};
  EXPECT_EQ(out_in.n(), 5);
  EXPECT_EQ(out_in.k(), 7);
  const WeightView in_out = {.view = view, .layout = WeightLayout::in_out};
  EXPECT_EQ(in_out.n(), 7);
  EXPECT_EQ(in_out.k(), 5);
}

TEST(WeightView, TurnsWithoutMovingAnything) {
  const std::array<float, 35> elements{};
  const WeightView view = {
      .view = {.data = elements.data(), .dtype = Dtype::f32, .rows = 5, .cols = 7, .row_stride = 7},
      .layout = WeightLayout::out_in};
  EXPECT_EQ(view.turned().n(), 7);
  EXPECT_EQ(view.turned().k(), 5);
  EXPECT_EQ(view.turned().view.data, view.view.data);
  EXPECT_EQ(view.turned().turned().layout, view.layout);
}

TEST(WeightLayout, IsNamedAsTheOptionsCallIt) {
  EXPECT_EQ(name(WeightLayout::out_in), "out_in");
  EXPECT_EQ(name(WeightLayout::in_out), "in_out");
}

}  // namespace
}  // namespace plait
