#include "verify/nodes.h"

#include <algorithm>
#include <bit>

#include "base/round_up.h"

namespace plait::verify {
namespace {

constexpr int kMostLeaves = 16;

}  // namespace

std::int64_t random_node(Random& random, int world, std::int64_t unit) {
  std::int64_t leaves = world;
  while (leaves < kMostLeaves && random.one_in(2)) leaves *= 2;
  // The shortest k that has so many leaves, and one that isn't far above it.
  const std::int64_t shortest = leaves == kMostLeaves ? 16384 : 512 * leaves;
  const std::int64_t longest = leaves == kMostLeaves ? 20000 : 2 * shortest - 1;
  const std::int64_t k = random.between(shortest, longest);
  const std::int64_t units = world * unit;
  return base::ceil_div(k, units) * unit;
}

std::int64_t as_many_rows(std::int64_t most, std::int64_t length) {
  return std::clamp<std::int64_t>(most * 4000 / length, 1, most);
}

bool can_have_nodes(int world) {
  return world > 1 && world <= kMostLeaves && std::has_single_bit(static_cast<unsigned>(world));
}

SumTree tree_of(OpDesc desc, const std::vector<std::int64_t>& shares, Dtype wire) {
  const bool differ = std::any_of(shares.begin(), shares.end(),
                                  [&](std::int64_t share) { return share != shares[0]; });
  if (traits_of(desc.op).shares_k && differ) return {"the ranks' shares of k differ"};
  desc.k = shares[0];
  return sum_tree(desc, static_cast<int>(shares.size()), wire);
}

}  // namespace plait::verify
