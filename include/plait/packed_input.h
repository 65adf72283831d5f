// X packed for many products. A product that is run in windows then packs its rows once, not once
// for every window of columns.
//
//   plait::PackedInput ready;
//   gemm.pack({x}, ready);
//   for (const GemmWindow& window : windows)
//     gemm.run({.x = {x}, .weight = w, .out = chunk, .window = window, .packed_x = &ready});
//
// It changes the time, not the bits. It belongs to the x it was made from: run() refuses another. A
// change of the elements of x cannot be detected: pack x again after one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "plait/export.h"

namespace plait {

// Keeps its memory from one pack() to the next.
class PLAIT_EXPORT PackedInput {
 public:
  PackedInput();
  PackedInput(PackedInput&&) noexcept;
  PackedInput& operator=(PackedInput&&) noexcept;
  ~PackedInput();

  // The sizes of the x it was made from; 0 before the first pack() and after it was moved from.
  std::int64_t rows() const;
  std::int64_t k() const;

  // Bytes of memory that it keeps.
  std::size_t held_bytes() const;

  class State;
  State& state() const;  // for backends

 private:
  std::unique_ptr<State> state_;
};

}  // namespace plait
