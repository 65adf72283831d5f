// The size of a weight that an operator shards, as in the table in plait/ops.h.
#pragma once

#include <cstdint>

#include "plait/operator.h"

namespace plait::plan {

// Each rank has its share of that size; shares may differ.
enum class Split : std::uint8_t { nothing, n, k };

constexpr Split split_of(Operator op) {
  if (op == Operator::all_gather_matmul) return Split::n;
  return is_compute_first(op) && sums_over_ranks(op) ? Split::k : Split::nothing;
}

}  // namespace plait::plan
