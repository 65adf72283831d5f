#include "tensor/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <limits>
#include <ostream>
#include <sstream>
#include <vector>

#include "base/check.h"
#include "tensor/validate.h"

namespace plait::tensor {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void check_pair(const ConstTensorView& got, const ConstTensorView& want, const char* who) {
  validate_on_cpu(got, base::sentence(who, ": got"));
  validate_on_cpu(want, base::sentence(who, ": want"));
  PLAIT_CHECK(got.rows == want.rows && got.cols == want.cols, who, ": got is ", got.rows, " x ",
              got.cols, " but want is ", want.rows, " x ", want.cols);
}

std::vector<float> row_in_f32(const ConstTensorView& view, std::int64_t row) {
  std::vector<float> values(static_cast<std::size_t>(view.cols));
  convert(view.row(row), view.dtype, values.data(), Dtype::f32, values.size());
  return values;
}

double distance(double got, double want) {
  if (got == want || (std::isnan(got) && std::isnan(want))) return 0;
  const double difference = std::abs(got - want);
  return std::isnan(difference) ? kInfinity : difference;
}

// Never a NaN: an infinite difference is never allowed, and a tolerance that is a NaN allows
// nothing.
double ratio_of(double difference, double allowed) {
  if (difference == 0) return 0;
  return allowed > 0 && difference < kInfinity ? difference / allowed : kInfinity;
}

void look_at(Comparison& result, const Comparison& element) {
  ++result.elements;
  if (element.difference == 0) return;
  ++result.differing;
  if (element.ratio > 1) ++result.beyond;
  const bool worse = element.ratio > result.ratio ||
                     (element.ratio == result.ratio && element.difference > result.difference);
  if (result.differing > 1 && !worse) return;
  const Comparison counts = result;
  result = element;
  result.elements = counts.elements;
  result.differing = counts.differing;
  result.beyond = counts.beyond;
}

std::uint32_t bits_at(const ConstTensorView& view, std::int64_t row, std::int64_t col) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, view.column_range(col, col + 1).row(row), size_of(view.dtype));
  return bits;
}

}  // namespace

Comparison compare(const ConstTensorView& got, const ConstTensorView& want,
                   const Allowed& allowed) {
  check_pair(got, want, "compare");
  Comparison result;
  for (std::int64_t row = 0; row < got.rows && got.cols > 0; ++row) {
    const auto got_row = row_in_f32(got, row);
    const auto want_row = row_in_f32(want, row);
    for (std::int64_t col = 0; col < got.cols; ++col) {
      const auto at = static_cast<std::size_t>(col);
      Comparison element = {.row = row, .col = col, .got = got_row[at], .want = want_row[at]};
      element.allowed = allowed(row, col);
      element.difference = distance(element.got, element.want);
      element.ratio = ratio_of(element.difference, element.allowed);
      look_at(result, element);
    }
  }
  return result;
}

std::string Comparison::describe() const {
  std::ostringstream text;
  text << std::setprecision(9);
  if (differing == 0) {
    text << "all " << elements << " elements are equal";
    return std::move(text).str();
  }
  if (ok()) {
    text << "all " << elements << " elements are as close as allowed, " << differing
         << " of them not equal";
  } else {
    text << beyond << " of " << elements << " elements are off by more than allowed";
  }
  text << "; worst at [" << row << ", " << col << "]: got " << got << ", want " << want
       << ", |difference| " << std::setprecision(4) << difference << " is " << ratio
       << " times the allowed " << allowed;
  return std::move(text).str();
}

BitComparison same_bits(const ConstTensorView& got, const ConstTensorView& want) {
  check_pair(got, want, "same_bits");
  PLAIT_CHECK(got.dtype == want.dtype, "same_bits: got is ", name(got.dtype), " but want is ",
              name(want.dtype));
  for (std::int64_t row = 0; row < got.rows && got.cols > 0; ++row) {
    const auto* got_bytes = static_cast<const std::byte*>(got.row(row));
    const auto* want_bytes = static_cast<const std::byte*>(want.row(row));
    if (std::memcmp(got_bytes, want_bytes, got.row_bytes()) == 0) continue;
    const auto* differs = std::mismatch(got_bytes, got_bytes + got.row_bytes(), want_bytes).first;
    const auto col = (differs - got_bytes) / static_cast<std::int64_t>(size_of(got.dtype));
    return {.same = false,
            .row = row,
            .col = col,
            .dtype = got.dtype,
            .got = bits_at(got, row, col),
            .want = bits_at(want, row, col)};
  }
  return {};
}

std::string BitComparison::describe() const {
  if (same) return "the same bits";
  const auto digits = static_cast<int>(2 * size_of(dtype));
  std::ostringstream text;
  const auto show = [&](std::uint32_t bits) {
    float value = 0;
    convert(&bits, dtype, &value, Dtype::f32, 1);
    text << "0x" << std::hex << std::setfill('0') << std::setw(digits) << bits << std::dec << " ("
         << std::setprecision(9) << value << ")";
  };
  text << "first difference at [" << row << ", " << col << "]: got " << name(dtype) << " ";
  show(got);
  text << ", want ";
  show(want);
  return std::move(text).str();
}

std::ostream& operator<<(std::ostream& out, const BitComparison& result) {
  return out << result.describe();
}

}  // namespace plait::tensor
