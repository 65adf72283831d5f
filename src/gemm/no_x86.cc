#include <array>

#include "gemm/few_rows.h"
#include "gemm/loops.h"

namespace plait::gemm {

std::span<const Loops* const> loop_sets() {
  static const std::array<const Loops*, 1> sets = {&portable_loops()};
  return sets;
}

FewRows few_rows_in_sequence(Storage /*storage*/) { return {}; }
FewRows few_rows_in_pairs(Storage /*storage*/) { return {}; }
FewRows few_rows_in_chains(Storage /*storage*/) { return {}; }

}  // namespace plait::gemm
