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

void Product::run_strip(const Turn& turn, Range rows, Workspace::Thread& memory) {
  const Job& job = turn.job;
  const std::int64_t panel = turn.place.panel;
  const std::int64_t place =
      ((panel - job.panels.begin) * size(job.rows) + rows.begin - job.rows.begin) * kPanelColumns;
  float* sums = reinterpret_cast<float*>(memory.sums.data()) + place;
  float* part = sums;
  if (is_grouped()) {
    part =
        reinterpret_cast<float*>(memory.parts.data()) + (memory.cut.has_whole_groups() ? 0 : place);
  }
  const Tile tile = results_.tile(panel, rows);
  const TileOut out = turn.last ? results_.straight(tile) : TileOut{};
  if (has_few(job)) {
    multiply_few(turn, rows, part, sums);
  } else {
    for (const Piece& piece : turn.place.block.pieces) {
      multiply(turn, piece, rows, part, out);
      if (is_grouped() && piece.ends) add_scaled(turn, {&piece, 1}, rows, part, sums);
    }
  }
  if (!turn.last) return;
  if (out.data == nullptr) results_.finish(tile, sums);
  results_.tell_of(tile);
}

void Product::add_scaled(const Turn& turn, std::span<const Piece> groups, Range rows,
                         const float* parts, float* sums) const {
  loops().add_scaled(parts, packed_->scales(groups.front().group, turn.place.panel),
                     static_cast<int>(groups.size()), static_cast<int>(size(rows)), sums);
}

void Product::multiply(const Turn& turn, const Piece& piece, Range rows, float* sums,
                       const TileOut& out) const {
  const std::int64_t k = piece.padded_begin - turn.place.block.padded_begin();
  const auto bytes = static_cast<std::int64_t>(size_of(kernel_.operand()));
  const TileCall call = {.rows = rows_.at(kernel_, rows.begin - packed_from_, piece.padded_begin),
                         .row_stride = rows_.row_stride,
                         .panel = turn.operand + k * kPanelColumns * bytes,
                         .k = piece.padded_length(),
                         .sums = sums,
                         .row_count = static_cast<int>(size(rows)),
                         .first = piece.starts,
                         .ahead = turn.ahead.data(),
                         .ahead_bytes = static_cast<std::int64_t>(turn.ahead.size()),
                         .rows_ahead = rows_ahead(turn, piece, rows),
                         .out = out};
  show_tile(kernel_, call);
  kernel_.multiply(call);
}

// As many groups at once as there is room for their sums in `parts`.
void Product::multiply_few(const Turn& turn, Range rows, float* parts, float* sums) const {
  std::span<const Piece> pieces = turn.place.block.pieces;
  const std::size_t most = is_grouped() ? groups_at_once(size(rows)) : 1;
  while (!pieces.empty()) {
    std::size_t count = 1;
    while (count < std::min(most, pieces.size()) &&
           pieces[count].padded_length() == pieces[0].padded_length())
      ++count;
    multiply_groups(turn, pieces.first(count), rows, parts);
    if (is_grouped()) add_scaled(turn, pieces.first(count), rows, parts, sums);
    pieces = pieces.subspan(count);
  }
}

void Product::multiply_groups(const Turn& turn, std::span<const Piece> groups, Range rows,
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
