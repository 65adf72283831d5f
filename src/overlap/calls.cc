#include "overlap/calls.h"

#include "comm/core/operation.h"

namespace plait::overlap {
// The matrix that travels is m by n if the product comes first, and m by k if it comes last. Ranks
// have the same n and k, unless each has a share of it.
Tag tag_of(const Problem& problem, const Plan& plan) {
  const OperatorTraits& traits = traits_of(problem.op);
  const std::int64_t k = traits.shares_k ? 0 : problem.k;
  return {.operation = comm::operation_of(problem.op),
          .dtype = problem.x,
          .wire = problem.wire,
          .plan = fingerprint(plan),
          .sizes = {problem.m, traits.shares_n ? 0 : problem.n,
                    k + kTagOut * static_cast<std::int64_t>(problem.out)}};
}

}  // namespace plait::overlap
