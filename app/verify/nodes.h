// Equal shares of a sum over k, one for each rank, and the tree in which the sum is added.
#pragma once

#include <cstdint>
#include <vector>

#include "plait/ops.h"
#include "plait/sum_tree.h"
#include "verify/random.h"

namespace plait::verify {

// Returns a share that is a node of the sum's tree, of one leaf or several, if all ranks of a world
// that can_have_nodes() have as much. It is a multiple of `unit`.
std::int64_t random_node(Random& random, int world, std::int64_t unit);

// Returns at most `most`, and less if a row of `length` elements is so long that more of them would
// take too much time.
std::int64_t as_many_rows(std::int64_t most, std::int64_t length);

// True if a world of so many ranks can have shares that are nodes.
bool can_have_nodes(int world);

// The tree of the operator's sum if ranks have these shares of k.
SumTree tree_of(OpDesc desc, const std::vector<std::int64_t>& shares, Dtype wire);

}  // namespace plait::verify
