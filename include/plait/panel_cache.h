// Panels of a plain weight that a run has packed, kept for later runs. For a product whose rows
// arrive in several turns.
//
//   plait::PanelCache panels;
//   for (const Turn& turn : turns)
//     gemm.run({.x = {turn.rows}, .weight = w, .out = turn.out, .panel_cache = &panels});
//
// It changes the time, not the bits. It belongs to the weight it was made from: run() refuses
// another. A change of the weight's elements cannot be detected: call forget() after one. It serves
// one run at a time.
#pragma once

#include <cstddef>
#include <memory>

#include "plait/export.h"

namespace plait {

// Borrows its memory, a copy of the weight, until forget(). The process keeps that memory and lends
// it to the next PanelCache.
class PLAIT_EXPORT PanelCache {
 public:
  PanelCache();
  PanelCache(PanelCache&&) noexcept;
  PanelCache& operator=(PanelCache&&) noexcept;
  ~PanelCache();

  // Resets it, for the next weight or for this one with other elements.
  void forget();

  // Bytes of memory that it has borrowed.
  std::size_t held_bytes() const;

  class State;
  State& state() const;  // for backends

 private:
  std::unique_ptr<State> state_;
};

}  // namespace plait
