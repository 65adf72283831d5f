// A strip: as many rows as a kernel takes at once, by one block of a panel.
#include <algorithm>

#include "gemm/product.h"
#include "gemm/tsan_annotate.h"
#include "tensor/stride.h"

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

// The distance between two slots, in floats.
std::int64_t Product::slot_stride(const Turn& turn) {
  return size(turn.job.panels) * size(turn.job.rows) * kPanelColumns;
}

float* Product::sums_of(const Turn& turn, Range rows, int slot, Workspace::Thread& memory) {
  const Job& job = turn.job;
  const std::int64_t row =
      (turn.place.panel - job.panels.begin) * size(job.rows) + rows.begin - job.rows.begin;
  return reinterpret_cast<float*>(memory.sums.data()) + slot * slot_stride(turn) +
         row * kPanelColumns;
}

void Product::run_strip(const Turn& turn, Range rows, Workspace::Thread& memory) {
  const Tile tile = results_.tile(turn.place.panel, rows);
  const bool by_kernel = turn.last && !has_few(turn.job);
  const TileOut out = by_kernel ? results_.straight(tile) : TileOut{};
  const std::span<const Piece> pieces = turn.place.block.pieces;
  if (has_few(turn.job)) {
    run_few(turn, rows, memory);
  } else if (memory.cut.leaves().size() > 1 && has_leaves_in_kernel(turn)) {
    multiply(turn, pieces.front(), {rows, out},
             {.sums = sums_of(turn, rows, 0, memory),
              .leaves = memory.cut.leaves(),
              .slot_stride = slot_stride(turn)});
  } else {
    for (const Piece& piece : pieces)
      run_piece(turn, piece, {rows, &piece == &pieces.back() ? out : TileOut{}}, memory);
  }
  if (!turn.last) return;
  if (out.data == nullptr)
    results_.finish(tile, sums_of(turn, rows, task_.leaves.slots() - 1, memory));
  results_.tell_of(tile);
}

bool Product::has_leaves_in_kernel(const Turn& turn) const {
  return kernel_.adds_nodes() && !is_grouped() && results_.leaf_scales(turn.place.panel) == nullptr;
}

void Product::run_piece(const Turn& turn, const Piece& piece, const Strip& strip,
                        Workspace::Thread& memory) {
  const Range rows = strip.rows;
  if (!is_grouped()) {
    float* const sums = sums_of(turn, rows, Leaves::slot_of(piece.leaf), memory);
    const bool in_kernel = has_leaves_in_kernel(turn);
    const Nodes nodes = in_kernel ? nodes_of(turn, piece, rows, memory) : Nodes{};
    multiply(turn, piece, strip, {.sums = sums, .nodes = nodes});
    // The first leaf's sums may be where they belong already.
    const bool waits = piece.leaf % 2 != 0 || results_.leaf_scales(turn.place.panel) != nullptr;
    if (!in_kernel && piece.ends_leaf && waits)
      add_to_leaves(turn, {&piece, 1}, {rows, sums}, memory);
    return;
  }
  auto* part = reinterpret_cast<float*>(memory.parts.data());
  if (!memory.cut.has_whole_groups())
    part += sums_of(turn, rows, 0, memory) - reinterpret_cast<float*>(memory.sums.data());
  multiply(turn, piece, strip, {.sums = part});
  if (piece.ends) add_to_leaves(turn, {&piece, 1}, {rows, part}, memory);
}

// Multiplies as many pieces at once as there is room for their sums.
void Product::run_few(const Turn& turn, Range rows, Workspace::Thread& memory) {
  std::span<const Piece> pieces = turn.place.block.pieces;
  const bool apart = has_parts(turn.job);
  float* const sums =
      apart ? reinterpret_cast<float*>(memory.parts.data()) : sums_of(turn, rows, 0, memory);
  const std::size_t most = apart ? groups_at_once(size(rows)) : pieces.size();
  while (!pieces.empty()) {
    std::size_t count = 1;
    while (count < std::min(most, pieces.size()) &&
           pieces[count].padded_length() == pieces[0].padded_length())
      ++count;
    multiply_few(turn, pieces.first(count), rows, sums);
    if (apart) add_to_leaves(turn, pieces.first(count), {rows, sums}, memory);
    pieces = pieces.subspan(count);
  }
}

Nodes Product::nodes_of(const Turn& turn, const Piece& piece, Range rows,
                        Workspace::Thread& memory) {
  if (!piece.ends_leaf) return {};
  return Leaves::nodes_of(piece.leaf, sums_of(turn, rows, 0, memory), slot_stride(turn));
}

// Takes the sums of whole groups, or of whole leaves.
void Product::add_to_leaves(const Turn& turn, std::span<const Piece> pieces, const Parts& parts,
                            Workspace::Thread& memory) const {
  const Piece& first = pieces.front();
  const std::int64_t panel = turn.place.panel;
  const std::int64_t leaf_begin = task_.leaves.begin(first.leaf);
  loops_.add_to_leaves(
      {.pieces = pieces,
       .sums = parts.sums,
       .scales = is_grouped() ? packed_->scales(first.group, panel) : results_.leaf_scales(panel),
       .scales_step = is_grouped() ? kPanelColumns : 0,
       .add_up = is_grouped(),
       .begins_leaf = first.group == task_.depth.group_of(leaf_begin)},
      static_cast<int>(size(parts.rows)),
      {sums_of(turn, parts.rows, 0, memory), slot_stride(turn)});
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
      .ahead = turn.ahead,
      .rows_ahead = rows_ahead(turn, piece, rows),
      .leaves = chain.leaves,
      .slot_stride = chain.slot_stride,
      .nodes = chain.nodes,
      .out = strip.out,
      .from_memory = comes_from_memory_};
  tsan_annotate(kernel_, call);
  kernel_.multiply(call);
}

void Product::multiply_few(const Turn& turn, std::span<const Piece> groups, Range rows,
                           float* sums) const {
  const Piece& first = groups.front();
  const std::byte* panel = turn.operand + panel_bytes(storage_, first.padded_begin);
  const auto step = kKStep * static_cast<std::int64_t>(size_of(kernel_.operand()));
  const bool plain = kernel_.row_form() == RowForm::plain;
  few_.multiply(
      {.rows = rows_.at(kernel_, rows.begin - packed_from_, first.padded_begin),
       .row_stride = plain ? rows_.row_stride : step,
       .step_stride = plain ? step : step * kRowGroup,
       .panel = reinterpret_cast<const std::int8_t*>(panel),
       .offsets = packed_ == nullptr ? nullptr : packed_->offsets(first.group, turn.place.panel),
       .k = first.padded_length(),
       .sums = sums,
       .row_count = static_cast<int>(size(rows)),
       .first = first.starts,
       .groups = static_cast<int>(groups.size()),
       .offset_step = is_grouped() ? kPanelColumns : 0,
       .leaves = has_parts(turn.job) || task_.leaves.count() == 1 ? 0 : task_.leaves.count(),
       .leaf = first.leaf,
       .slot_stride = slot_stride(turn),
       .scales = is_grouped() ? nullptr : results_.leaf_scales(turn.place.panel)});
}

// Takes panel by panel if the weight's rows are outputs, so that the hook is called sooner.
void Product::run_plain(const Job& job, Workspace::Thread& memory) {
  memory.cut.make(task_.depth, task_.leaves, task_.depth.padded());
  const bool out_in = task_.call.weight.view().layout == WeightLayout::out_in;
  const std::int64_t step = out_in ? 1 : size(job.panels);
  for (std::int64_t panel = job.panels.begin; panel < job.panels.end; panel += step) {
    const Job some = {.rows = job.rows, .panels = {panel, panel + step}};
    make_room(some, memory);
    multiply_plain(some, memory);
    const Turn turn = {.job = some, .place = {}, .operand = nullptr, .last = true};
    for (std::int64_t p = some.panels.begin; p < some.panels.end; ++p) {
      const Tile tile = results_.tile(p, job.rows);
      const float* sums = reinterpret_cast<const float*>(memory.sums.data()) +
                          (task_.leaves.slots() - 1) * slot_stride(turn) +
                          (p - panel) * size(job.rows) * kPanelColumns;
      results_.finish(tile, sums);
      results_.tell_of(tile);
    }
  }
}

void Product::multiply_plain(const Job& job, const Workspace::Thread& memory) const {
  const WeightView& weight = task_.call.weight.view();
  const bool out_in = weight.layout == WeightLayout::out_in;
  const std::int64_t first = job.panels.begin * kPanelColumns;
  const std::int64_t last = std::min(job.panels.end * kPanelColumns, weight.n());
  const ConstTensorView columns =
      out_in ? weight.view.row_range(first, last) : weight.view.column_range(first, last);
  tsan_annotate(columns);
  const Dtype dtype = widens_rows() ? Dtype::f32 : kernel_.operand();
  const auto step = kKStep * static_cast<std::int64_t>(size_of(dtype));
  const bool plain = kernel_.row_form() == RowForm::plain;
  const auto multiply = !turns_rows()     ? widens_rows() ? plain_.multiply_wide : plain_.multiply
                        : turns_squares() ? plain_.multiply_squares
                                          : plain_.multiply_turned;
  multiply({.rows = rows_.at(kernel_, job.rows.begin - packed_from_, 0),
            .row_stride = plain ? rows_.row_stride : step,
            .step_stride = plain ? step : step * kRowGroup,
            .weight = static_cast<const std::byte*>(columns.data),
            .weight_stride = tensor::stride_bytes(columns),
            .out_in = out_in,
            .columns = last - first,
            .k = task_.depth.k,
            .leaves = memory.cut.leaves(),
            .sums = reinterpret_cast<float*>(memory.sums.data()),
            .slot_stride = size(job.panels) * size(job.rows) * kPanelColumns,
            .row_count = static_cast<int>(size(job.rows))});
}

}  // namespace plait::gemm
