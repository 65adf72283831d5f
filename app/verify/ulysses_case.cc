#include "verify/ulysses_case.h"

#include <algorithm>

#include "base/check.h"

namespace plait::verify {
namespace {

// Heads of a fused weight, or pieces of any size that ranks get in any order; some get none.
ColumnGroups random_columns(Random& random, std::int64_t columns, int world) {
  if (random.one_in(3)) return equal_columns(columns, world);
  ColumnGroups groups(static_cast<std::size_t>(world));
  const auto most = random.of<std::int64_t>({16, 64, 200});
  for (std::int64_t first = 0; first < columns;) {
    const std::int64_t count = std::min(random.between(1, most), columns - first);
    std::vector<ColumnRange>& group = groups[static_cast<std::size_t>(random.below(world))];
    group.insert(random.one_in(3) ? group.begin() : group.end(), {first, count});
    first += count;
  }
  return groups;
}

// Gives ranks copies of the columns with which others' begin.
void share_columns(Random& random, ColumnGroups& groups) {
  const ColumnGroups own = groups;
  for (std::size_t rank = 0; rank < own.size(); ++rank) {
    for (std::size_t other = 0; other < own.size(); ++other) {
      if (other == rank || own[other].empty() || random.one_in(2)) continue;
      groups[rank].push_back(own[other].front());
    }
  }
}

UlyssesVariant random_variant(Random& random, bool product_first) {
  // Their plans are those of an operator with every schedule, whose product comes first or last.
  const Operator op = product_first ? Operator::matmul_reduce_scatter : Operator::all_gather_matmul;
  return {.plan = random_plan(random, op), .threads = random.one_in(4) ? 2 : 1};
}

}  // namespace

UlyssesCase random_ulysses_case(std::uint64_t seed, std::int64_t number, int world) {
  Random random(seed, static_cast<std::uint64_t>(number) * 64 + static_cast<std::uint64_t>(world));
  UlyssesCase one;
  one.seed = seed * 1000003 + static_cast<std::uint64_t>(number);
  one.product_first = random.one_in(2);
  const bool large = random.one_in(12);
  one.m = random_size(random, large ? 1500 : 150);
  one.n = random_size(random, large && random.one_in(2) ? 1500 : 260);
  one.k = random_size(random, large && random.one_in(2) ? 2200 : 200);
  // Many results are written straight into slots, and many rows are multiplied as they come.
  if (random.one_in(3)) {
    one.m = random.between(400, 900);
    one.n = random.between(200, 500);
    one.k = random_size(random, 80);
  }
  one.columns = random_columns(random, one.product_first ? one.n : one.k, world);
  one.shared = random.one_in(4);
  if (one.shared) share_columns(random, one.columns);
  const bool usual = random.one_in(2);
  one.x = usual ? Dtype::bf16 : random_dtype(random);
  one.weight = usual ? Dtype::bf16 : random_dtype(random);
  one.out = usual ? Dtype::bf16 : random_dtype(random);
  if (random.one_in(4)) one.scheme = random_scheme(random);
  one.layout = random.one_in(2) ? WeightLayout::out_in : WeightLayout::in_out;
  one.packed = one.scheme || random.one_in(2);
  one.bias = random.one_in(2);
  one.gathered = !one.product_first && random.one_in(2);
  one.delays = random.one_in(8);
  one.modes = random.one_in(2);
  one.numbers = random_numbers(random);
  // Which of two NaNs a sum becomes is left open.
  const bool is_sum = one.shared && !one.product_first;
  if (is_sum && one.numbers == Numbers::broken) one.numbers = Numbers::wide;
  for (int i = 0; i < 3; ++i) one.variants.push_back(random_variant(random, one.product_first));
  one.variants.push_back({.plan = {}});
  return one;
}

std::string describe(const UlyssesCase& one) {
  std::string text = base::sentence(
      one.product_first ? "matmul_all_to_all" : "all_to_all_matmul", " m=", one.m, " n=", one.n,
      " k=", one.k, " x=", name(one.x), " w=", one.scheme ? name(*one.scheme) : name(one.weight),
      one.packed ? "" : ":plain", " out=", name(one.out), " ",
      one.layout == WeightLayout::out_in ? "out_in" : "in_out", one.bias ? " bias" : "",
      one.gathered ? " gathered" : "", one.shared ? " shared" : "", one.delays ? " delays" : "",
      one.modes ? " modes" : "", " numbers=", name(one.numbers), " columns=");
  for (std::size_t rank = 0; rank < one.columns.size(); ++rank) {
    if (rank > 0) text += '/';
    std::int64_t count = 0;
    for (const ColumnRange& range : one.columns[rank]) count += range.count;
    text += base::sentence(count, " in ", one.columns[rank].size());
  }
  return text;
}

}  // namespace plait::verify
