// A strip: as many rows as a kernel takes at once, by one block of a panel.
#include <algorithm>

#include "gemm/product.h"
#include "gemm/shown_tile.h"

namespace plait::gemm {
namespace {

std::size_t groups_at_once(std::int64_t rows) {
  const std::size_t group_bytes = static_cast<std::size_t>(rows) * kPanelColumns * sizeof(float);
  return std::max<std::size_t>(kPartsAtOnce / group_bytes, 1);
}

}  // namespace

const std::byte* Product::rows_ahead(const Turn& turn, const Piece& piece, Range rows) const {
  const RowsAhead& ahead = turn.rows_ahead;
  const std::int64_t row = ahead.rows.begin + rows.begin - turn.job.rows.begin;
  if (row + size(rows) > ahead.rows.end) return nullptr;
  return rows_.at(kernel_, row, ahead.k + piece.padded_begin - turn.place.block.padded_begin());
}

float* Product::sums_of(const Turn& turn, Range rows, int slot, Workspace::Thread& memory) {
  const Job& job = turn.job;
  const std::int64_t row =
      (turn.place.panel - job.panels.begin) * size(job.rows) + rows.begin - job.rows.begin;
  const std::int64_t rows_of_slot = size(job.panels) * size(job.rows);
  return reinterpret_cast<float*>(memory.sums.data()) + (slot * rows_of_slot + row) * kPanelColumns;
}

void Product::run_strip(const Turn& turn, Range rows, Workspace::Thread& memory) {
  const Tile tile = results_.tile(turn.place.panel, rows);
  const TileOut out = turn.last ? results_.straight(tile) : TileOut{};
  std::span<const Piece> pieces = turn.place.block.pieces;
  if (memory.cut.leaves().size() > 1 && has_leaves_in_kernel(turn)) {
    multiply(turn, pieces.front(), {rows, out},
             {.sums = sums_of(turn, rows, 0, memory),
              .leaves = memory.cut.leaves(),
              .slot_stride = size(turn.job.panels) * size(turn.job.rows) * kPanelColumns});
    pieces = {};
  }
  while (!pieces.empty()) {
    const std::size_t count = pieces_at_once(turn, pieces, rows);
    const bool last = count == pieces.size();
    run_pieces(turn, pieces.first(count), {rows, last ? out : TileOut{}}, memory);
    pieces = pieces.subspan(count);
  }
  if (!turn.last) return;
  if (out.data == nullptr)
    results_.finish(tile, sums_of(turn, rows, task_.leaves.slots() - 1, memory));
  results_.tell_of(tile);
}

bool Product::has_leaves_in_kernel(const Turn& turn) const {
  return kernel_.adds_nodes() && !has_few(turn.job) && !is_grouped() &&
         results_.leaf_scales(turn.place.panel) == nullptr;
}

// Of one leaf. A kernel takes a piece; few rows take as many groups as there is room for their
// sums.
std::size_t Product::pieces_at_once(const Turn& turn, std::span<const Piece> pieces,
                                    Range rows) const {
  if (!has_few(turn.job) || !is_grouped()) return 1;
  const std::size_t most = std::min(groups_at_once(size(rows)), pieces.size());
  std::size_t count = 1;
  while (count < most && pieces[count].leaf == pieces[0].leaf &&
         pieces[count].padded_length() == pieces[0].padded_length())
    ++count;
  return count;
}

void Product::run_pieces(const Turn& turn, std::span<const Piece> pieces, const Strip& strip,
                         Workspace::Thread& memory) {
  const Range rows = strip.rows;
  const Piece& first = pieces.front();
  const Piece& last = pieces.back();
  const int slot = Leaves::slot_of(first.leaf);
  float* const sums = sums_of(turn, rows, slot, memory);
  float* part = sums;
  if (is_grouped()) {
    part = reinterpret_cast<float*>(memory.parts.data());
    if (!memory.cut.has_whole_groups())
      part += sums_of(turn, rows, 0, memory) - reinterpret_cast<float*>(memory.sums.data());
    if (first.starts_leaf) std::fill_n(sums, size(rows) * kPanelColumns, 0.0F);
  }
  Nodes nodes;
  for (int below = 0; last.ends_leaf && below < slot; ++below)
    nodes.of[static_cast<std::size_t>(nodes.count++)] = sums_of(turn, rows, below, memory);
  const float* scales = last.ends_leaf ? results_.leaf_scales(turn.place.panel) : nullptr;
  const bool few = has_few(turn.job);
  const bool in_kernel = has_leaves_in_kernel(turn);
  if (few) {
    multiply_few(turn, pieces, rows, part);
  } else {
    multiply(turn, first, strip, {.sums = part, .nodes = in_kernel ? nodes : Nodes{}});
  }
  if (is_grouped() && last.ends) add_scaled(turn, pieces, rows, part, sums);
  if (!in_kernel && (nodes.count > 0 || scales != nullptr))
    loops().end_leaf(nodes, scales, static_cast<int>(size(rows)), sums);
}

void Product::add_scaled(const Turn& turn, std::span<const Piece> groups, Range rows,
                         const float* parts, float* sums) const {
  loops().add_scaled(parts, packed_->scales(groups.front().group, turn.place.panel),
                     static_cast<int>(groups.size()), static_cast<int>(size(rows)), sums);
}

void Product::multiply(const Turn& turn, const Piece& piece, const Strip& strip,
                       const Chain& chain) const {
  const Range rows = strip.rows;
  const std::int64_t k = piece.padded_begin - turn.place.block.padded_begin();
  const auto bytes = static_cast<std::int64_t>(size_of(kernel_.operand()));
  const TileCall call = {
      .rows = rows_.at(kernel_, rows.begin - packed_from_, piece.padded_begin),
      .row_stride = rows_.row_stride,
      .panel = turn.operand + k * kPanelColumns * bytes,
      .k = chain.leaves.empty() ? piece.padded_length() : turn.place.block.padded_length(),
      .sums = chain.sums,
      .row_count = static_cast<int>(size(rows)),
      .first = piece.starts,
      .ahead = turn.ahead.data(),
      .ahead_bytes = static_cast<std::int64_t>(turn.ahead.size()),
      .rows_ahead = rows_ahead(turn, piece, rows),
      .leaves = chain.leaves,
      .slot_stride = chain.slot_stride,
      .nodes = chain.nodes,
      .out = strip.out};
  show_tile(kernel_, call);
  kernel_.multiply(call);
}

void Product::multiply_few(const Turn& turn, std::span<const Piece> groups, Range rows,
                           float* sums) const {
  const Piece& first = groups.front();
  const std::byte* panel = turn.operand + panel_bytes(storage_, first.padded_begin);
  const auto step = kKStep * static_cast<std::int64_t>(size_of(kernel_.operand()));
  const bool plain = kernel_.row_form() == RowForm::plain;
  few_.multiply({.rows = rows_.at(kernel_, rows.begin - packed_from_, first.padded_begin),
                 .row_stride = plain ? rows_.row_stride : step,
                 .step_stride = plain ? step : step * kRowGroup,
                 .panel = reinterpret_cast<const std::int8_t*>(panel),
                 .offsets = packed_->offsets(first.group, turn.place.panel),
                 .k = first.padded_length(),
                 .sums = sums,
                 .row_count = static_cast<int>(size(rows)),
                 .first = first.starts,
                 .groups = static_cast<int>(groups.size())});
}

}  // namespace plait::gemm
