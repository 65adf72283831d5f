// Blocks of k, and the panels' blocks in the operand of a kernel.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "gemm/depth.h"
#include "gemm/kernel.h"
#include "gemm/leaves.h"
#include "gemm/panels.h"
#include "plait/gemm.h"

namespace plait::gemm {

// k in blocks of about `step`, or all of it in one where that is no longer.
//
// Groups: several in a block, or several blocks in one, never both.
// groups of 128, step 256 → 2 + 2 + ...; groups of 600, step 256 → 256, 256, 88, 256, ...
//
// Leaves: blocks end with them and at multiples of the step, wherever leaves begin: rows are read
// in runs that begin at a page's start. What is left at a leaf's ends and is less than half a step
// joins its neighbour. leaves of 736, step 256 → 256, 256, 224, 288, 256, 192
class DepthBlocks {
 public:
  // Makes only the blocks that have not been made.
  void make(const Depth& depth, const Leaves& leaves, std::int64_t step);

  struct Block {
    std::span<const Piece> pieces;
    std::int64_t padded_begin() const { return pieces.front().padded_begin; }
    std::int64_t padded_length() const {
      return pieces.back().padded_begin + pieces.back().padded_length() - padded_begin();
    }
  };

  std::int64_t size() const { return ceil_div(static_cast<std::int64_t>(pieces_.size()), each_); }
  Block block(std::int64_t i) const;
  std::int64_t longest() const { return longest_; }  // of the blocks, with padding
  // The lengths of the leaves, with padding, if a block has all k and there are no groups.
  std::span<const std::int64_t> leaves() const { return leaves_; }
  bool has_whole_groups() const { return whole_groups_; }

 private:
  struct Made {
    Depth depth;
    Leaves leaves;
    std::int64_t step;

    bool operator==(const Made&) const = default;
  };

  void cut_all(const Depth& depth, const Leaves& leaves, std::int64_t step);
  void cut_leaf(std::int64_t leaf, Range k, std::int64_t step);
  void cut_group(const Depth& depth, std::int64_t group, std::int64_t step);

  std::optional<Made> made_;
  std::vector<Piece> pieces_;
  std::vector<std::int64_t> leaves_;
  std::int64_t each_ = 1;  // pieces of a block
  bool whole_groups_ = true;
  std::int64_t longest_ = 0;
};

// The source of a product's panels. k is counted with the padding.
struct PanelSource {
  const PackedWeight* packed;  // or else:
  Storage storage;
  Dtype operand;
  // A view's panels, packed for this call: these k of those from `first_panel` on.
  const std::byte* panels;
  std::int64_t first_panel;
  Range k;

  bool is_operand() const { return gemm::is_operand(storage, operand); }
  const std::byte* stored(std::int64_t panel, std::int64_t at) const;
};

// Makes blocks of panels ready for one thread, each while the one before is used.
class PanelBlocks {
 public:
  // Blocks are at most `longest` k, with padding; `memory` has bytes() bytes for the thread alone.
  static std::size_t bytes(const PanelSource& source, std::int64_t longest);
  PanelBlocks(const PanelSource& source, std::int64_t longest, std::byte* memory);

  struct Index {
    std::int64_t panel;
    DepthBlocks::Block block;
  };

  // The block's operand, which stays until the call after the next. What was expanded of it since
  // begin() is not expanded again.
  const std::byte* ready(const Index& index);

  // The block's operand where nothing has to be made of it; otherwise none.
  AheadRows stored_operand(const Index& index) const;

  // Says which block comes next; each of `parts` calls of advance() expands a part of it.
  void begin(const Index& index, std::int64_t parts);
  void advance() {
    if (length_ > 0) expand_until(done_ + part_);
  }

 private:
  void start(const Index& index);
  void expand_until(std::int64_t k);
  std::byte* operand(int which) {
    return memory_ + static_cast<std::size_t>(which) * operand_bytes_;
  }

  const PanelSource& source_;
  std::size_t operand_bytes_;
  std::byte* memory_;  // two operands
  Index next_ = {};
  const std::byte* stored_ = nullptr;  // of the next block
  std::int64_t length_ = 0;            // of the next block; 0: none has begun
  std::int64_t done_ = 0;              // k of it
  std::int64_t part_ = 0;              // k of one advance()
  int turn_ = 0;                       // which operand the next block becomes
};

}  // namespace plait::gemm
