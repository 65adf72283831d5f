#include "heads/vector_loops.h"
#include "heads/x86/sets.h"

namespace plait::heads {

const Loops& avx2_loops() {
  static constexpr Loops kLoops = {
      "avx2", base::InstructionSet::avx2, extent, add_exponentials, sum, softmax, reaches};
  return kLoops;
}

}  // namespace plait::heads
