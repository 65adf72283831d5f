// Damages results, to see whether a check notices.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "conformance/ranks.h"
#include "verify/check.h"

namespace plait::verify {

// The result of that name; an empty one if a call has no such result.
inline TensorView view_of(const Results& results, std::string_view name) {
  for (const Result& one : results) {
    if (one.name == name) return one.matrix.view();
  }
  return {};
}

// The message of rank 1 of two when its results are damaged; rank 0 finds nothing.
template <class Case>
std::string found_by_rank_1(const Case& one, const Spoil& spoil) {
  std::array<std::string, 2> all;
  run_as_threads(2, [&](Communicator& comm) {
    all[static_cast<std::size_t>(comm.rank())] =
        verify_case(one, comm, comm.rank() == 1 ? spoil : Spoil()).failure;
  });
  EXPECT_EQ(all[0], "");
  return all[1];
}

// Flips the lowest bit of an element.
inline void flip(const TensorView& view, std::int64_t row, std::int64_t col) {
  auto* at = static_cast<std::byte*>(view.row(row)) + col * size_of(view.dtype);
  *at ^= std::byte{1};
}

}  // namespace plait::verify
