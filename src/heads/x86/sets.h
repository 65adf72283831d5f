// The sets of loops for x86.
#pragma once

#include "heads/loops.h"

namespace plait::heads {

const Loops& avx2_loops();
const Loops& avx512_loops();

}  // namespace plait::heads
