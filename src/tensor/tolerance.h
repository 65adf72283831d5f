// The largest error that the numerics contract allows, derived from the roundings.
//
//   const Roundings way = {.terms = k, .world = 4, .wire = Dtype::bf16, .out = Dtype::bf16};
//   compare(got, want, [&](auto i, auto j) { return tolerance(way, sum_abs(i, j)); });
#pragma once

#include <cstdint>

#include "plait/dtype.h"

namespace plait::tensor {

// Rounding x to `dtype` moves it by at most unit_roundoff(dtype)·|x| + smallest_roundoff(dtype):
// half the distance between the numbers next to 0. For s8 that is the whole bound, a half.
double smallest_roundoff(Dtype dtype);

// n·u / (1 - n·u): bounds |(1 + d_1)···(1 + d_n) - 1| for |d_i| <= u. Infinite where n·u >= 1.
double gamma(std::int64_t n, double u);

// The roundings of one element y = Σ a·b (+ bias), from the operands to the caller.
struct Roundings {
  std::int64_t terms;  // products in the longest partial sum: the largest K of a rank
  int world = 1;
  Dtype wire = Dtype::f32;
  Dtype out = Dtype::f32;
  // For a wire of s8: the sum over ranks of the largest Σ |a|·|b| among the columns that share a
  // scale with the element (see coded_rows.h).
  double group = 0;
};

// The bound for an element that is compared with a reference computed exactly and then stored in
// f32. `magnitude` is Σ |a|·|b| over all ranks, plus |bias|.
double tolerance(const Roundings& way, double magnitude);

}  // namespace plait::tensor
