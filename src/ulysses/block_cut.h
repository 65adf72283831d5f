// How the block that one rank has for another is cut: in parts, which are multiplied at once, and
// chunks, which travel at once.
//
// A block has the owner's rows of one rank and the group of columns of another. Both ranks cut it
// alike: they know all sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "plait/gemm.h"
#include "plait/plan.h"
#include "plait/ulysses.h"

namespace plait::ulysses {

// Some rows of a block, and adjacent columns of the whole matrix.
struct Window {
  Range rows = {};
  Range columns;    // of the whole matrix
  std::int64_t at;  // the first of these columns in the block

  Range columns_in_block() const { return {at, at + columns.end - columns.begin}; }
};

struct CutRule {
  Plan plan;                       // not fused: in parts along `by_columns`
  bool by_columns = false;         // else by rows
  std::int64_t width = 0;          // fused: columns of a chunk; 0: all of a range
  std::int64_t height = 0;         // fused: rows of a chunk
  std::int64_t most_elements = 0;  // of a chunk that is copied
};

class BlockCut {
 public:
  struct Part {
    std::vector<Window> windows;
    std::uint32_t end_chunk;   // the block's chunks up to here are of this part and those before
    std::int64_t end_row = 0;  // if parts are rows: those up to here are complete
  };

  BlockCut() = default;
  BlockCut(std::int64_t rows, const std::vector<ColumnRange>& group, const CutRule& rule);

  const std::vector<Part>& parts() const { return parts_; }
  std::uint32_t chunks() const { return static_cast<std::uint32_t>(chunks_.size()); }
  const Window& chunk(std::uint32_t index) const { return chunks_[index]; }

 private:
  void add_part(Range rows, const std::vector<Window>& columns, std::int64_t most_elements);
  void cut_window(const Window& window, std::int64_t most_elements);

  std::vector<Part> parts_;
  std::vector<Window> chunks_;
};

}  // namespace plait::ulysses
