#include "tensor/apart.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tensor/stride.h"

namespace plait::tensor {
namespace {

// The bytes from the first element to the end of the last one.
struct Span {
  const std::byte* begin;
  const std::byte* end;
};

Span span_of(const ConstTensorView& view) {
  const auto* begin = static_cast<const std::byte*>(view.data);
  if (view.rows == 0 || view.cols == 0) return {begin, begin};
  return {begin, static_cast<const std::byte*>(view.row(view.rows - 1)) + view.row_bytes()};
}

// True for two sets of columns of one matrix that have no column in common.
bool are_columns_apart(const ConstTensorView& one, const ConstTensorView& other) {
  const auto bytes = [](const ConstTensorView& view, std::int64_t elements) {
    return elements * static_cast<std::int64_t>(size_of(view.dtype));
  };
  const std::int64_t stride = std::max(stride_bytes(one), stride_bytes(other));
  for (const ConstTensorView* view : {&one, &other}) {
    if (view->rows > 1 && stride_bytes(*view) != stride) return false;
  }
  if (stride == 0) return false;
  const std::int64_t between =
      static_cast<const std::byte*>(other.data) - static_cast<const std::byte*>(one.data);
  // of the other, within a row of the first
  const std::int64_t begin = (between % stride + stride) % stride;
  return bytes(one, one.cols) <= begin && begin + bytes(other, other.cols) <= stride;
}

}  // namespace

bool are_apart(const ConstTensorView& one, const ConstTensorView& other) {
  const Span a = span_of(one);
  const Span b = span_of(other);
  const bool apart = a.begin == a.end || b.begin == b.end || a.end <= b.begin || b.end <= a.begin;
  return apart || are_columns_apart(one, other);
}

}  // namespace plait::tensor
