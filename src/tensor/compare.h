// Differences between two matrices, described so that the cause can be found.
//
//   const auto result = compare(got, want, [&](auto row, auto) { return allowed[row]; });
//   EXPECT_TRUE(result.ok()) << result.describe();
//   // 2 of 4096 elements are off by more than allowed; worst at [3, 17]: got 1.5, want 1.25, ...
//
//   EXPECT_TRUE(same_bits(got, want));   // where the numerics contract promises equal bits
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>

#include "plait/tensor_view.h"

namespace plait::tensor {

// The tolerance for the element at (row, col); see tolerance.h.
using Allowed = std::function<double(std::int64_t row, std::int64_t col)>;

struct Comparison {
  std::int64_t elements = 0;
  std::int64_t differing = 0;  // not equal
  std::int64_t beyond = 0;     // off by more than allowed

  // The worst element has the largest difference, as a multiple of the tolerance there.
  std::int64_t row = 0;
  std::int64_t col = 0;
  double got = 0;
  double want = 0;
  double difference = 0;
  double allowed = 0;
  double ratio = 0;

  bool ok() const { return beyond == 0; }
  std::string describe() const;
};

// The matrices must have the same shape, and may have different dtypes. Two NaNs are equal,
// whatever their payloads. A NaN and a number, and unequal infinities, differ by infinitely much.
Comparison compare(const ConstTensorView& got, const ConstTensorView& want, const Allowed& allowed);

struct BitComparison {
  bool same = true;

  // The first element in row order whose bits differ.
  std::int64_t row = 0;
  std::int64_t col = 0;
  Dtype dtype = Dtype::f32;
  std::uint32_t got = 0;
  std::uint32_t want = 0;

  explicit operator bool() const { return same; }
  std::string describe() const;
};

std::ostream& operator<<(std::ostream& out, const BitComparison& result);

// Compares like memcmp, row by row: -0 and 0 differ, and so do NaNs with different payloads.
BitComparison same_bits(const ConstTensorView& got, const ConstTensorView& want);

}  // namespace plait::tensor
