#include "tensor/validate.h"

#include <cstdint>

#include "base/check.h"

namespace plait::tensor {
namespace {

// True if `rows` rows that start `stride` elements apart take less than 2^63 bytes.
bool addressable(std::int64_t rows, std::int64_t stride, Dtype dtype) {
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
  return !__builtin_mul_overflow(rows, stride, &elements) &&
         !__builtin_mul_overflow(elements, static_cast<std::int64_t>(size_of(dtype)), &bytes);
}

}  // namespace

std::size_t checked_bytes(const ConstTensorView& shape, std::string_view who) {
  PLAIT_CHECK(shape.dtype <= Dtype::s8 || shape.dtype == kNoDtype, who, " has the unknown dtype ",
              static_cast<int>(shape.dtype));
  PLAIT_CHECK(shape.rows >= 0 && shape.cols >= 0, who, " is ", shape.rows, " x ", shape.cols,
              ": sizes must be 0 or more");
  PLAIT_CHECK(shape.dtype != kNoDtype || shape.rows == 0 || shape.cols == 0, who, " is ",
              shape.rows, " x ", shape.cols, " and has no dtype");
  PLAIT_CHECK(addressable(shape.rows, shape.cols, shape.dtype), who, " is ", shape.rows, " x ",
              shape.cols, " ", name(shape.dtype), ": more than memory can hold");
  return shape.bytes();
}

void validate(const ConstTensorView& view, std::string_view who) {
  if (checked_bytes(view, who) == 0) return;
  PLAIT_CHECK(view.rows == 1 || view.row_stride >= view.cols, who, " has ", view.cols,
              " columns but a row stride of ", view.row_stride);
  PLAIT_CHECK(view.rows == 1 || addressable(view.rows, view.row_stride, view.dtype), who, " has ",
              view.rows, " rows with a stride of ", view.row_stride, " ", name(view.dtype),
              ": more than memory can hold");
  PLAIT_CHECK(view.data != nullptr, who, " is ", view.rows, " x ", view.cols,
              " but its data is null");
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  PLAIT_CHECK(address % size_of(view.dtype) == 0, who, " is ", name(view.dtype),
              " but its data at ", view.data, " is not aligned to ", size_of(view.dtype), " bytes");
}

void validate_on_cpu(const ConstTensorView& view, std::string_view who) {
  PLAIT_CHECK(view.device == kCpu, who, " is on ", name(view.device),
              ", which the CPU cannot read");
  validate(view, who);
}

}  // namespace plait::tensor
