#include "heads/x86/sets.h"

#include <array>

namespace plait::heads {

std::span<const Loops* const> loop_sets() {
  static const std::array<const Loops*, 3> sets = {&avx512_loops(), &avx2_loops(),
                                                   &portable_loops()};
  return sets;
}

}  // namespace plait::heads
