// The rule by which the blocks of a call are cut: it follows from the plan, and from nothing that
// only one rank knows.
#pragma once

#include <cstdint>

#include "ulysses/block_cut.h"
#include "ulysses/ulysses_op.h"

namespace plait::ulysses {

struct CallPlace {
  std::int64_t m;  // rows of all ranks
  int world;
  bool linked;  // ranks are connected by links, and not by memory
};

CutRule rule_for(const Kind& kind, const CallPlace& place, const Plan& plan);

// Elements that no chunk is larger than.
std::int64_t largest_chunk(const Kind& kind, const CallPlace& place, const CutRule& rule);

}  // namespace plait::ulysses
