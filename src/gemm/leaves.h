// How a sum over k is cut in leaves, which are added in pairs, level by level: a rule that knows
// nothing but k, so that the sum is the same on any number of ranks.
//
// k = 5000 has 8 leaves: 0 608 1248 1856 2496 3104 3744 4352 5000
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "gemm/depth.h"
#include "gemm/kernel.h"

namespace plait::gemm {

// Leaves begin at multiples of this.
constexpr std::int64_t leaf_unit(std::int64_t group) { return group == 0 ? kKStep : group; }

// The number of leaves of a sum over k, a power of two.
constexpr std::int64_t leaves_of(std::int64_t k, std::int64_t group) {
  constexpr std::int64_t kShortest = 512;
  constexpr std::int64_t kMany = 16384;  // from here on there are 16
  std::int64_t leaves = k >= kMany ? 16 : 8;
  while (leaves > 1 && k < leaves * kShortest) leaves /= 2;
  while (leaves > 1 && k < leaves * leaf_unit(group)) leaves /= 2;
  return leaves;
}

// Why `shares` equal shares of k are not nodes of the tree; nullptr: they are nodes, and all are
// cut alike.
constexpr const char* refusal_of_nodes(const Depth& share, std::int64_t shares) {
  constexpr std::int64_t kMost = 16;
  if (shares == 1) return nullptr;
  if (shares < 1 || shares > kMost || !std::has_single_bit(static_cast<std::uint64_t>(shares)))
    return "k is shared by another number of ranks than 2, 4, 8 or 16";
  if (share.k % leaf_unit(share.group) != 0) {
    return share.group == 0 ? "the share of k is not a multiple of 32"
                            : "the share of k is not a multiple of the weight's group";
  }
  if (leaves_of(share.k * shares, share.group) < shares)
    return "the share of k is shorter than a leaf";
  return nullptr;
}

constexpr bool are_nodes(const Depth& share, std::int64_t shares) {
  return refusal_of_nodes(share, shares) == nullptr;
}

// The leaves of one of some equal shares of k; where shares are no nodes, of a sum of its own.
class Leaves {
 public:
  explicit Leaves(const Depth& depth, std::int64_t shares = 1)
      : k_(depth.k),
        unit_(leaf_unit(depth.group)),
        count_(are_nodes(depth, shares) ? leaves_of(depth.k * shares, depth.group) / shares
                                        : leaves_of(depth.k, depth.group)) {}

  bool operator==(const Leaves&) const = default;

  std::int64_t count() const { return count_; }
  std::int64_t begin(std::int64_t leaf) const {
    return leaf == count_ ? k_ : leaf * k_ / count_ / unit_ * unit_;
  }

  // Sums wait in slots: slot l for a node of 2^l leaves. A leaf is made in the slot of the node
  // that ends with it, and the slots below hold what has to be added to it, the lowest first.
  int slots() const { return slot_of(count_ - 1) + 1; }

  // Inlined because kernels for several instruction sets use them.
  [[gnu::always_inline]] static int slot_of(std::int64_t leaf) {
    return std::countr_one(static_cast<std::uint64_t>(leaf));
  }
  // The nodes that are added to a leaf if slots are `stride` floats apart.
  [[gnu::always_inline]] static Nodes nodes_of(std::int64_t leaf, const float* slots,
                                               std::int64_t stride) {
    Nodes nodes = {.of = {}, .count = slot_of(leaf)};
    for (int slot = 0; slot < nodes.count; ++slot)
      nodes.of[static_cast<std::size_t>(slot)] = slots + slot * stride;
    return nodes;
  }

 private:
  std::int64_t k_;
  std::int64_t unit_;
  std::int64_t count_;
};

// The part of a block of k in one chain of a sum: of one group of k if there are groups, otherwise
// of one leaf.
struct Piece {
  std::int64_t group;
  std::int64_t begin;         // of k
  std::int64_t length;        // without padding
  std::int64_t padded_begin;  // the beginning in rows and panels
  bool starts;                // the chain
  bool ends;
  std::int64_t leaf;
  bool ends_leaf;

  std::int64_t padded_length() const { return round_up(length, kKStep); }
};

}  // namespace plait::gemm
