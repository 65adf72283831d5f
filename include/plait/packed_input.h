// X made ready for many products: one that is run in windows packs its rows once, not once for
// every window of columns.
//
//   plait::PackedInput ready;
//   gemm.pack({x}, ready);
//   for (const Window& window : windows)
//     gemm.run({.x = {x}, .weight = w, .out = chunk, .window = window, .packed_x = &ready});
//
// It changes no bits, only the time. It is as long-lived as the x it was made of: when x has
// changed, pack it again.
#pragma once

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

  // Of the x it was made of; 0 before there was one.
  std::int64_t rows() const;
  std::int64_t k() const;

  class State;
  State& state() const { return *state_; }  // for backends

 private:
  std::unique_ptr<State> state_;
};

}  // namespace plait
