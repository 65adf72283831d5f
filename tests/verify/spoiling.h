// Damages results, to see whether a check notices.
#pragma once

#include <cstddef>
#include <string_view>

#include "verify/check.h"

namespace plait::verify {

// The result of that name; an empty one if a call has no such result.
inline TensorView view_of(const Results& results, std::string_view name) {
  for (const Result& one : results) {
    if (one.name == name) return one.matrix.view();
  }
  return {};
}

// Flips the lowest bit of an element.
inline void flip(const TensorView& view, std::int64_t row, std::int64_t col) {
  auto* at = static_cast<std::byte*>(view.row(row)) + col * size_of(view.dtype);
  *at ^= std::byte{1};
}

}  // namespace plait::verify
