#include "comm/flow/row_flow.h"

#include <algorithm>
#include <cstring>

#include "comm/flow/chunks.h"
#include "tensor/copy.h"

namespace plait::comm {
namespace {

SpanArgs args_of(int peer, std::uint32_t chunk, std::size_t bytes) {
  return {.bytes = static_cast<std::int64_t>(bytes),
          .peer = peer,
          .chunk = static_cast<std::int32_t>(chunk)};
}

// Rows of a matrix in the columns of a piece.
template <class View>
View part_of(const View& matrix, RowRange rows, RowRange columns) {
  return matrix.row_range(rows.begin, rows.end).column_range(columns.begin, columns.end);
}

// How a run of a block is copied; all of the block would be `bytes`.
template <class View>
Handling handling_of(const View& run, std::size_t bytes) {
  return {.is_large = bytes >= kLargeStreamBytes && run.is_contiguous()};
}

}  // namespace

void MatrixParcels::write(int peer, const RowPiece& piece, std::byte* to) {
  const ConstTensorView matrix = outgoing();
  const RowBlock& block = block_to(peer);
  const std::size_t block_bytes = static_cast<std::size_t>(block.rows()) * matrix.row_bytes();
  block.for_each_run(piece.rows, [&](RowRange rows, std::int64_t /*at*/) {
    const ConstTensorView run = part_of(matrix, rows, piece.columns);
    copy_to_slot(to, run, handling_of(run, block_bytes));
    to += run.bytes();
  });
}

void MatrixParcels::read(int peer, const RowPiece& piece, const std::byte* from) {
  const TensorView matrix = incoming();
  const RowBlock& block = block_from(peer);
  const std::size_t block_bytes = static_cast<std::size_t>(block.rows()) * matrix.row_bytes();
  block.for_each_run(piece.rows, [&](RowRange rows, std::int64_t /*at*/) {
    const TensorView run = part_of(matrix, rows, piece.columns);
    copy_from_slot(from, run, handling_of(run, block_bytes));
    from += run.bytes();
  });
  if (block_bytes >= kLargeStreamBytes) tensor::stream_fence();
}

RowFlow::RowFlow(Lanes& lanes, RowParcels& parcels, const RowCut& cut, Way way)
    : lanes_(lanes),
      parcels_(parcels),
      cut_(cut),
      way_(way),
      chunks_to_(static_cast<std::size_t>(lanes.world())),
      ready_(chunks_to_.size()),
      chunks_from_(chunks_to_.size()) {}

void RowFlow::begin() {
  unknown_ = cut_.has_header() ? lanes_.peers().size() : 0;
  for (const int peer : lanes_.peers()) {
    const auto index = static_cast<std::size_t>(peer);
    chunks_to_[index] = cut_.chunks(parcels_.rows_to(peer));
    chunks_from_[index] = cut_.has_header() ? kUnknown : cut_.chunks(parcels_.rows_from(peer));
    if (cut_.has_header()) counts_.resize(parcels_.counts_to(peer).size());
  }
  ready_ = chunks_to_;
  if (cut_.has_header() && unknown_ == 0) parcels_.make_places();
}

void RowFlow::hold() { std::fill(ready_.begin(), ready_.end(), 0); }

void RowFlow::ready(int peer, std::int64_t rows) {
  ready_[static_cast<std::size_t>(peer)] = cut_.whole_chunks(rows, parcels_.rows_to(peer));
}

bool RowFlow::step_once() {
  bool moved = false;
  for (const int peer : lanes_.peers()) {
    moved |= send_next(peer);
    moved |= take_next(peer);
  }
  return moved;
}

bool RowFlow::send_next(int peer) {
  const std::uint32_t chunk = lanes_.posted(way_, peer);
  if (chunk >= at(ready_, peer) || !lanes_.vacant(way_, peer)) return false;
  const std::int64_t rows = parcels_.rows_to(peer);
  const std::size_t bytes = cut_.bytes(chunk, rows);
  const SpanArgs args = args_of(peer, chunk, bytes);
  const Span span(lanes_.trace(), Lane::comm, "copy", args);
  std::byte* slot = lanes_.outbox(way_, peer);
  if (chunk == 0 && cut_.has_header()) {
    const std::span<const std::int64_t> counts = parcels_.counts_to(peer);
    std::memset(slot, 0, cut_.header_bytes());
    std::memcpy(slot, counts.data(), counts.size_bytes());
    slot += cut_.header_bytes();
  }
  const auto work = [&] {
    return MemoryWork{
        .label = "copy", .read = args.bytes, .written = args.bytes, .args = args, .to_peer = true};
  };
  lanes_.run(work, [&] { parcels_.write(peer, cut_.piece(chunk, rows), slot); });
  lanes_.post(way_, peer, bytes);
  return true;
}

bool RowFlow::take_next(int peer) {
  const bool is_new = !is_known(peer);
  const std::uint32_t chunk = lanes_.taken(way_, peer);
  if (!is_new && (unknown_ > 0 || chunk >= at(chunks_from_, peer))) return false;
  if (!lanes_.arrived(way_, peer)) return false;
  if (is_new) {
    read_header(peer);
    return true;
  }
  const std::int64_t rows = parcels_.rows_from(peer);
  const std::size_t bytes = cut_.bytes(chunk, rows);
  const std::byte* from = lanes_.inbox(way_, peer, bytes);
  const Span span(lanes_.trace(), Lane::comm, "take", args_of(peer, chunk, bytes));
  if (chunk == 0) from += cut_.header_bytes();
  const auto work = [&] {
    const auto size = static_cast<std::int64_t>(bytes);
    return MemoryWork{.label = "take", .read = size, .written = size};
  };
  lanes_.run(work, [&] { parcels_.read(peer, cut_.piece(chunk, rows), from); });
  lanes_.release(way_, peer);
  return true;
}

// The chunk stays where it is: its rows have no place yet.
void RowFlow::read_header(int peer) {
  const std::span<const std::byte> came = lanes_.inbox(way_, peer);
  if (came.size() < cut_.header_bytes())  // of another cut, which this refuses
    static_cast<void>(lanes_.inbox(way_, peer, cut_.header_bytes()));
  std::memcpy(counts_.data(), came.data(), counts_.size() * sizeof(std::int64_t));
  const std::int64_t rows = parcels_.learn(peer, counts_);
  static_cast<void>(lanes_.inbox(way_, peer, cut_.bytes(0, rows)));
  chunks_from_[static_cast<std::size_t>(peer)] = cut_.chunks(rows);
  if (--unknown_ == 0) parcels_.make_places();
}

bool RowFlow::done() const {
  if (unknown_ > 0) return false;
  for (const int peer : lanes_.peers()) {
    if (lanes_.posted(way_, peer) < at(chunks_to_, peer)) return false;
    if (lanes_.taken(way_, peer) < at(chunks_from_, peer)) return false;
  }
  return true;
}

Awaited RowFlow::awaited() const {
  for (const int peer : lanes_.peers()) {
    const bool is_missing = !is_known(peer) || lanes_.taken(way_, peer) < at(chunks_from_, peer);
    if (is_missing && !lanes_.arrived(way_, peer)) return lanes_.chunk_from(way_, peer);
  }
  for (const int peer : lanes_.peers()) {
    if (lanes_.posted(way_, peer) < at(ready_, peer)) return lanes_.room_at(way_, peer);
  }
  return lanes_.nothing_awaited();
}

}  // namespace plait::comm
