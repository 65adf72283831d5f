// Processors without kernels of their own use the portable ones.
#include <array>

#include "gemm/amx/factory.h"
#include "gemm/few_rows.h"
#include "gemm/loops.h"

namespace plait::gemm {

std::span<const Loops* const> loop_sets() {
  static const std::array<const Loops*, 1> sets = {&portable_loops()};
  return sets;
}

FewRows few_rows_in_chains(Storage /*storage*/) { return {}; }
PlainRows plain_rows_in_chains(Storage /*storage*/) { return {}; }

namespace amx {

const char* refusal(Dtype) { return "this processor is not an x86"; }

std::unique_ptr<TileKernel> create(Dtype) { return nullptr; }

}  // namespace amx

}  // namespace plait::gemm
