#include "cli/tune/problems.h"

#include <algorithm>

namespace plait::cli {
namespace {

// y = x·w with n columns and k terms. Without partial sums chunks have x's dtype.
PlanKey problem(Operator op, std::int64_t n, std::int64_t k, const PlanKey& usual) {
  PlanKey key = usual;
  key.op = op;
  key.n = n;
  key.k = k;
  if (!traits_of(op).shares_k) key.wire = key.x;
  return key;
}

}  // namespace

void add_problem(std::vector<PlanKey>& problems, const PlanKey& problem) {
  if (std::find(problems.begin(), problems.end(), problem) == problems.end())
    problems.push_back(problem);
}

std::vector<PlanKey> problems_of(const plan::BlockWidths& widths, bool sequence_parallel,
                                 const PlanKey& usual) {
  const Operator sum =
      sequence_parallel ? Operator::matmul_reduce_scatter : Operator::matmul_all_reduce;
  std::vector<PlanKey> problems;
  for (const plan::LinearLayer& layer : plan::linear_layers(widths)) {
    const bool column = layer.kind == plan::LinearKind::column;
    // Forward multiplies by the weight, and backward by its transpose. What one gathers, the other
    // sums.
    if (sequence_parallel) {
      const PlanKey gather = problem(Operator::all_gather_matmul, column ? layer.out : layer.in,
                                     column ? layer.in : layer.out, usual);
      add_problem(problems, gather);
    }
    add_problem(problems,
                problem(sum, column ? layer.in : layer.out, column ? layer.out : layer.in, usual));
  }
  return problems;
}

}  // namespace plait::cli
