#include <array>

#include "heads/loops.h"

namespace plait::heads {

std::span<const Loops* const> loop_sets() {
  static const std::array<const Loops*, 1> sets = {&portable_loops()};
  return sets;
}

}  // namespace plait::heads
