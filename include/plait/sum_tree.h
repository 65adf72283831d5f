// In which tree a sum over k is added up where ranks have shares of k (docs/concepts/numerics.md).
//
//   if (const plait::SumTree tree = op.sum_tree(); !tree) std::puts(tree.refusal);
#pragma once

namespace plait {

// True: the tree of all k, so that the bits are those of one rank. False: a tree over the ranks'
// partial sums, for the reason that is given; the bits are the same in every plan, transport and
// run, but others in another world.
struct SumTree {
  const char* refusal = nullptr;  // nullptr: it is that of all k

  explicit operator bool() const { return refusal == nullptr; }
};

}  // namespace plait
