#include "overlap/calls.h"

namespace plait::overlap {
namespace {

plait::Operation name_of(Operator op) {
  switch (op) {
    case Operator::matmul:
      return plait::Operation::custom;
    case Operator::matmul_all_reduce:
      return plait::Operation::matmul_all_reduce;
    case Operator::matmul_reduce_scatter:
      return plait::Operation::matmul_reduce_scatter;
    case Operator::matmul_all_gather:
      return plait::Operation::matmul_all_gather;
    case Operator::all_gather_matmul:
      return plait::Operation::all_gather_matmul;
    case Operator::reduce_scatter_matmul:
      return plait::Operation::reduce_scatter_matmul;
    case Operator::all_reduce_matmul:
      return plait::Operation::all_reduce_matmul;
  }
  return plait::Operation::custom;
}

}  // namespace

// What travels is m by n where the product comes first, and m by k where it comes last. Ranks have
// the same n and k, but where each has a share of it.
Tag tag_of(const Problem& problem, const Plan& plan) {
  const bool gathers_out = problem.op == Operator::matmul_all_gather;
  const bool shares_k = is_compute_first(problem.op) && !gathers_out;
  const bool shares_n = problem.op == Operator::all_gather_matmul;
  const std::int64_t k = shares_k ? 0 : problem.k;
  return {.operation = name_of(problem.op),
          .dtype = problem.x,
          .wire = problem.wire,
          .plan = fingerprint(plan),
          .sizes = {problem.m, shares_n ? 0 : problem.n,
                    k + kTagOut * static_cast<std::int64_t>(problem.out)}};
}

}  // namespace plait::overlap
