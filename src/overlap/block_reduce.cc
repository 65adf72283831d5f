#include "overlap/block_reduce.h"

#include <algorithm>

namespace plait::overlap {

void CutPartials::set_blocks(int part, const std::vector<ConstTensorView>& blocks) {
  const auto index = static_cast<std::size_t>(part);
  sources_.resize(own_.size() * blocks.size());  // by the first call
  std::copy(blocks.begin(), blocks.end(),
            sources_.begin() + static_cast<std::ptrdiff_t>(blocks.size() * index));
  own_[index] = blocks[static_cast<std::size_t>(rank_)];
}

// The block of a chunk in that of its part.
ConstTensorView CutPartials::part(std::uint32_t chunk, int owner) const {
  const auto part = static_cast<std::size_t>(cut_.part_of(chunk));
  const ConstTensorView& from =
      owner == rank_ ? own_[part] : sources_[part * world_ + static_cast<std::size_t>(owner)];
  const Cut::Part& whole = cut_.parts()[part];
  const Block block = cut_.block(chunk, owner);
  const std::int64_t row = block.rows.begin - whole.rows()[static_cast<std::size_t>(owner)].begin;
  const std::int64_t column = block.columns.begin - whole.columns.begin;
  return from.row_range(row, row + length(block.rows))
      .column_range(column, column + length(block.columns));
}

TensorView CutPartials::sum(std::uint32_t chunk) const {
  const Block block = cut_.block(chunk, rank_);
  return result_.out
      .row_range(block.rows.begin - result_.first_row, block.rows.end - result_.first_row)
      .column_range(block.columns.begin, block.columns.end);
}

}  // namespace plait::overlap
