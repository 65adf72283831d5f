#include "heads/vector_loops.h"
#include "heads/x86/sets.h"

namespace plait::heads {

const Loops& avx512_loops() {
  static constexpr Loops kLoops = {
      "avx512", base::InstructionSet::avx512, extent, add_exponentials, sum, softmax, reaches};
  return kLoops;
}

}  // namespace plait::heads
