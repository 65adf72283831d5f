#include "gemm/panel_blocks.h"

#include <algorithm>

namespace plait::gemm {
namespace {

// Expanders take whole pairs; a few of them at once.
constexpr std::int64_t kExpandedAtOnce = 4;

}  // namespace

void DepthBlocks::make(const Depth& depth, const Leaves& leaves, std::int64_t step) {
  const Made made = {.depth = depth, .leaves = leaves, .step = step};
  if (made_ == made) return;
  made_.reset();
  cut_all(depth, leaves, step);
  longest_ = 0;
  for (std::int64_t i = 0; i < size(); ++i) longest_ = std::max(longest_, block(i).padded_length());
  made_ = made;
}

void DepthBlocks::cut_all(const Depth& depth, const Leaves& leaves, std::int64_t step) {
  pieces_.clear();
  leaves_.clear();
  const std::int64_t group = round_up(depth.group_size(), kKStep);
  whole_groups_ = group <= step;
  each_ = 1;
  if (depth.k == 0) return;
  for (std::int64_t leaf = 0; leaf < leaves.count(); ++leaf) {
    const Range k = {leaves.begin(leaf), leaves.begin(leaf + 1)};
    if (depth.group == 0) {
      cut_leaf(leaf, k, step);
      continue;
    }
    const std::size_t first = pieces_.size();
    for (std::int64_t g = depth.group_of(k.begin); g < depth.groups() && depth.begin(g) < k.end;
         ++g)
      cut_group(depth, g, step);
    for (std::size_t i = first; i < pieces_.size(); ++i) pieces_[i].leaf = leaf;
    pieces_.back().ends_leaf = true;
  }
  if (depth.group != 0 && whole_groups_) each_ = step / group;
  if (step < depth.padded()) return;
  each_ = static_cast<std::int64_t>(pieces_.size());
  for (const Piece& piece : pieces_) {
    if (depth.group == 0) leaves_.push_back(piece.padded_length());
  }
}

void DepthBlocks::cut_leaf(std::int64_t leaf, Range k, std::int64_t step) {
  for (std::int64_t begin = k.begin; begin < k.end;) {
    std::int64_t end = (begin / step + 1) * step;
    if (begin == k.begin && end - begin < step / 2) end += step;
    if (k.end - end < step / 2) end = k.end;
    pieces_.push_back({.group = 0,
                       .begin = begin,
                       .length = end - begin,
                       .padded_begin = begin,
                       .starts = begin == k.begin,
                       .ends = end == k.end,
                       .leaf = leaf,
                       .ends_leaf = end == k.end});
    begin = end;
  }
}

// The leaf is not known here.
void DepthBlocks::cut_group(const Depth& depth, std::int64_t group, std::int64_t step) {
  const std::int64_t length = depth.length(group);
  const std::int64_t part = whole_groups_ ? length : step;
  for (std::int64_t k = 0; k < length; k += part) {
    pieces_.push_back({.group = group,
                       .begin = depth.begin(group) + k,
                       .length = std::min(part, length - k),
                       .padded_begin = depth.padded_begin(group) + k,
                       .starts = k == 0,
                       .ends = k + part >= length,
                       .leaf = 0,
                       .ends_leaf = false});
  }
}

DepthBlocks::Block DepthBlocks::block(std::int64_t i) const {
  const auto first = static_cast<std::size_t>(i * each_);
  const auto count = std::min(static_cast<std::size_t>(each_), pieces_.size() - first);
  return {.pieces = std::span(pieces_).subspan(first, count)};
}

const std::byte* PanelSource::stored(std::int64_t panel, std::int64_t at) const {
  if (packed != nullptr) return packed->panel(panel) + panel_bytes(storage, at);
  const std::size_t before = panel_bytes(storage, k.end - k.begin);
  return panels + static_cast<std::size_t>(panel - first_panel) * before +
         panel_bytes(storage, at - k.begin);
}

std::size_t PanelBlocks::bytes(const PanelSource& source, std::int64_t longest) {
  if (source.is_operand()) return 0;
  return 2 * static_cast<std::size_t>(longest * kPanelColumns) * size_of(source.operand);
}

PanelBlocks::PanelBlocks(const PanelSource& source, std::int64_t longest, std::byte* memory)
    : source_(source),
      operand_bytes_(static_cast<std::size_t>(longest * kPanelColumns) * size_of(source.operand)),
      memory_(memory) {}

const std::byte* PanelBlocks::ready(const Index& index) {
  if (source_.is_operand()) return source_.stored(index.panel, index.block.padded_begin());
  if (length_ == 0) start(index);
  expand_until(length_);
  length_ = 0;
  turn_ = 1 - turn_;
  return operand(1 - turn_);
}

AheadRows PanelBlocks::stored_operand(const Index& index) const {
  if (!source_.is_operand() || index.block.pieces.empty()) return {};
  const auto bytes = static_cast<std::int64_t>(panel_bytes(source_.storage, 2));
  return {.first = source_.stored(index.panel, index.block.padded_begin()),
          .stride = bytes,
          .bytes = bytes,
          .rows = index.block.padded_length() / 2};
}

void PanelBlocks::begin(const Index& index, std::int64_t parts) {
  if (source_.is_operand()) return;
  start(index);
  part_ = round_up(ceil_div(length_, parts), kExpandedAtOnce);
}

void PanelBlocks::start(const Index& index) {
  next_ = index;
  stored_ = source_.stored(index.panel, index.block.padded_begin());
  length_ = index.block.padded_length();
  done_ = 0;
}

void PanelBlocks::expand_until(std::int64_t k) {
  const std::int64_t end = std::min(k, length_);
  const std::int64_t begin = done_ + next_.block.padded_begin();
  for (const Piece& piece : next_.block.pieces) {
    const std::int64_t from = std::max(begin, piece.padded_begin);
    const std::int64_t to =
        std::min(end + next_.block.padded_begin(), piece.padded_begin + piece.padded_length());
    if (from >= to) continue;
    const std::int64_t at = from - next_.block.padded_begin();
    const std::int8_t* offsets =
        source_.packed == nullptr ? nullptr : source_.packed->offsets(piece.group, next_.panel);
    expand(
        source_.storage, stored_ + panel_bytes(source_.storage, at), to - from, offsets,
        source_.operand,
        operand(turn_) + static_cast<std::size_t>(at * kPanelColumns) * size_of(source_.operand));
  }
  done_ = std::max(done_, end);
}

}  // namespace plait::gemm
