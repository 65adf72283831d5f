// The tree in which a sum over k is added if ranks have shares of k (docs/concepts/numerics.md).
//
//   if (const plait::SumTree tree = op.sum_tree(); !tree) std::puts(tree.refusal);
#pragma once

namespace plait {

// True: it is the tree of all k, so the bits are those of one rank. False: it is a tree over the
// ranks' partial sums, for the reason in `refusal`. The bits are then the same in every plan,
// transport and run, but differ between worlds.
struct SumTree {
  const char* refusal = nullptr;  // nullptr: the tree of all k

  explicit operator bool() const { return refusal == nullptr; }
};

}  // namespace plait
