#include "gemm/panel_blocks.h"

#include <algorithm>

namespace plait::gemm {
namespace {

// Expanders take whole pairs; a few of them at once.
constexpr std::int64_t kExpandedAtOnce = 4;

}  // namespace

void Cut::make(const Depth& depth, std::int64_t step) {
  pieces_.clear();
  const std::int64_t group = round_up(depth.group_size(), kKStep);
  whole_groups_ = group <= step;
  each_ = whole_groups_ && group > 0 ? step / group : 1;
  for (std::int64_t g = 0; g < depth.groups(); ++g) {
    const std::int64_t length = depth.length(g);
    const std::int64_t part = whole_groups_ ? length : step;
    for (std::int64_t k = 0; k < length; k += part) {
      pieces_.push_back({.group = g,
                         .begin = depth.begin(g) + k,
                         .length = std::min(part, length - k),
                         .padded_begin = depth.padded_begin(g) + k,
                         .starts = k == 0,
                         .ends = k + part >= length});
    }
  }
}

Cut::Block Cut::block(std::int64_t i) const {
  const auto first = static_cast<std::size_t>(i * each_);
  const auto count = std::min(static_cast<std::size_t>(each_), pieces_.size() - first);
  return {.pieces = std::span(pieces_).subspan(first, count)};
}

std::int64_t Cut::longest() const {
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < size(); ++i) longest = std::max(longest, block(i).padded_length());
  return longest;
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

const std::byte* PanelBlocks::ready(const Place& place) {
  if (source_.is_operand()) return source_.stored(place.panel, place.block.padded_begin());
  if (length_ == 0) start(place);
  expand_until(length_);
  length_ = 0;
  turn_ = 1 - turn_;
  return operand(1 - turn_);
}

std::span<const std::byte> PanelBlocks::stored_operand(const Place& place) const {
  if (!source_.is_operand()) return {};
  return {source_.stored(place.panel, place.block.padded_begin()),
          panel_bytes(source_.storage, place.block.padded_length())};
}

void PanelBlocks::begin(const Place& place, std::int64_t parts) {
  if (source_.is_operand()) return;
  start(place);
  part_ = round_up(ceil_div(length_, parts), kExpandedAtOnce);
}

void PanelBlocks::start(const Place& place) {
  next_ = place;
  stored_ = source_.stored(place.panel, place.block.padded_begin());
  length_ = place.block.padded_length();
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
