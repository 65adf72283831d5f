#include "plait/packed_input.h"

#include <gtest/gtest.h>

#include <string>

#include "base/check.h"
#include "gemm/backend_test.h"
#include "gemm/matrix.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

using PackedRows = BackendTest;

TEST_P(PackedRows, AreOfTheirXOnly) {
  const GemmDesc desc = {
      .m = 6, .n = 9, .k = 6, .x = dtype(), .weight = dtype(), .out = Dtype::f32};
  if (!can(desc)) GTEST_SKIP() << refusal_of(GetParam());
  const Matrix x(desc.x, desc.m, desc.k, 1);
  const Matrix twin(desc.x, desc.m, desc.k, 1);  // the same elements elsewhere
  const Matrix w(desc.weight, desc.n, desc.k, 2);
  Gemm gemm = select(desc, 1);
  PackedInput ready;
  gemm.pack({x.view}, ready);
  Matrix y(Dtype::f32, desc.m, desc.n, 5);
  GemmCall call = {.x = {x.view},
                   .weight = WeightView{w.view, WeightLayout::out_in},
                   .out = y.view,
                   .packed_x = &ready};
  gemm.run(call);
  const auto refusal = [&](const GemmInput& other) {
    call.x = other;
    return sentence_of([&] { gemm.run(call); });
  };
  const auto address = [](const ConstTensorView& view) { return base::sentence(view.data); };
  const std::string dtype_name(name(dtype()));
  const std::string made = "matmul: packed_x was made of the " + dtype_name + " matrix at " +
                           address(x.view) + ", row stride 9, but x is the " + dtype_name +
                           " matrix at ";
  EXPECT_EQ(refusal({twin.view}), made + address(twin.view) + ", row stride 9");
  EXPECT_EQ(refusal({.view = x.view, .transposed = true}),
            made + address(x.view) + ", row stride 9, transposed");
  GemmInput apart = {x.view};
  apart.view.row_stride = 7;
  EXPECT_EQ(refusal(apart), made + address(x.view) + ", row stride 7");
  // Properties that say nothing about the elements may differ.
  call.window = {.rows = {0, 0}};
  call.out.rows = 0;
  for (const GemmInput& few :
       {GemmInput{x.view.row_range(2, 3)}, GemmInput{x.view.row_range(2, 2)}}) {
    gemm.pack(few, ready);
    GemmInput same = few;
    same.view.row_stride = 99;
    EXPECT_EQ(refusal(same), "nothing was refused");
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, PackedRows, all_kernels(), name_of);

}  // namespace
}  // namespace plait
