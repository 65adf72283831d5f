#include "verify/groups.h"

#include <algorithm>
#include <vector>

#include "plait/gemm.h"
#include "plait/grouped_gemm.h"

namespace plait::verify {
namespace {

constexpr std::int64_t kMostGroups = 12;

// Few groups get most rows, and some none.
std::vector<std::int64_t> random_groups(Random& random, std::int64_t rows) {
  std::vector<std::int64_t> groups(static_cast<std::size_t>(random.between(1, kMostGroups)));
  std::int64_t left = rows;
  for (std::int64_t& group : groups) {
    group = random.one_in(3) ? 0 : random.below(left + 1);
    left -= group;
  }
  groups[static_cast<std::size_t>(random.below(std::ssize(groups)))] += left;
  return groups;
}

}  // namespace

std::pair<Guarded, Guarded> in_groups(const VerifyCase& one,
                                      std::span<const std::unique_ptr<VerifyOperands>> all,
                                      int rank) {
  Random random(one.seed, 0x6709 + static_cast<std::uint64_t>(rank));
  const ConstTensorView x = all[static_cast<std::size_t>(rank)]->x();
  const std::vector<std::int64_t> rows = random_groups(random, x.rows);
  std::vector<Weight> weights;
  std::vector<ConstTensorView> biases;
  for (std::size_t group = 0; group < rows.size(); ++group) {
    const VerifyOperands& its = *all[group % all.size()];
    weights.push_back(its.weight());
    if (one.bias) biases.push_back(its.bias());
  }
  const GemmDesc desc = {.m = x.rows,
                         .n = weights[0].n(),
                         .k = weights[0].k(),
                         .x = one.x,
                         .weight = one.weight,
                         .out = one.out,
                         .quant = one.scheme};
  Guarded together(one.out, x.rows, desc.n);
  Guarded alone(one.out, x.rows, desc.n);
  select_grouped_gemm(desc, {.threads = random.one_in(4) ? 2 : 1})
      .run({.x = x, .rows = rows, .weights = weights, .out = together.view(), .biases = biases});
  Gemm gemm = select_gemm(desc, {.threads = 1});
  std::int64_t first = 0;
  for (std::size_t group = 0; group < rows.size(); ++group) {
    const std::int64_t end = first + rows[group];
    GemmCall call = {.x = {.view = x.row_range(first, end)},
                     .weight = weights[group],
                     .out = alone.view().row_range(first, end)};
    if (one.bias) call.bias = biases[group];
    if (first < end) gemm.run(call);
    first = end;
  }
  return {std::move(together), std::move(alone)};
}

}  // namespace plait::verify
