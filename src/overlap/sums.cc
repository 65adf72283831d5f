#include "overlap/sums.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/parallel.h"
#include "overlap/copy_block.h"
#include "tensor/reduce.h"

namespace plait::overlap {
namespace {

// Fewer elements are not worth waking a thread for.
constexpr std::int64_t kLeastPerThread = 32 * 1024;

// A sum that needs a temporary place before it is rounded is made so many columns at a time.
constexpr std::int64_t kColumnsAtOnce = 1024;

}  // namespace

Sums::Sums(Exchange& exchange, const Cut& cut, Dtype wire, int threads)
    : exchange_(exchange),
      cut_(cut),
      wire_(wire),
      threads_(threads),
      own_(cut.parts().size()),
      parts_(static_cast<std::size_t>(exchange.world())),
      places_(parts_.size() * static_cast<std::size_t>(threads)) {}

void Sums::begin(const Result& result) {
  result_ = result;
  made_ = 0;
  summed_ = 0;
}

void Sums::made(int part, const std::vector<ConstTensorView>& blocks) {
  const auto index = static_cast<std::size_t>(part);
  sources_.resize(own_.size() * blocks.size());  // by the first call
  std::copy(blocks.begin(), blocks.end(),
            sources_.begin() + static_cast<std::ptrdiff_t>(blocks.size() * index));
  own_[index] = blocks[static_cast<std::size_t>(exchange_.rank())];
  made_ = cut_.parts()[index].end_chunk();
}

bool Sums::has_room() const {
  return std::all_of(exchange_.peers().begin(), exchange_.peers().end(),
                     [&](int peer) { return exchange_.vacant(Way::out, peer); });
}

TensorView Sums::box(int peer) {
  const Block block = cut_.block(made_, peer);
  return {.data = exchange_.box(Way::out, peer),
          .dtype = wire_,
          .rows = length(block.rows),
          .cols = length(block.columns),
          .row_stride = length(block.columns)};
}

void Sums::posted(const ConstTensorView& own) {
  own_[static_cast<std::size_t>(cut_.part_of(made_))] = own;
  for (const int peer : exchange_.peers()) exchange_.post(Way::out, peer, wire_bytes(made_, peer));
  ++made_;
}

void Sums::step() {
  for (bool moved = true; moved;) {
    moved = false;
    for (const int peer : exchange_.peers()) moved |= send_next(peer);
    moved |= sum_next();
  }
}

bool Sums::send_next(int peer) {
  const std::uint32_t chunk = exchange_.posted(Way::out, peer);
  if (chunk >= made_ || !exchange_.vacant(Way::out, peer)) return false;
  const auto size = static_cast<std::int64_t>(wire_bytes(chunk, peer));
  const SpanArgs args = {.bytes = size, .peer = peer, .chunk = static_cast<std::int32_t>(chunk)};
  const Span span(exchange_.trace(), Lane::comm, "copy", args);
  if (!exchange_.is_played(
          {.label = "copy", .read = size, .written = size, .args = args, .to_peer = true}))
    copy_block(source(chunk, peer), exchange_.box(Way::out, peer));
  exchange_.post(Way::out, peer, wire_bytes(chunk, peer));
  return true;
}

bool Sums::sum_next() {
  if (summed_ >= made_) return false;
  for (const int peer : exchange_.peers()) {
    if (!exchange_.arrived(Way::out, peer)) return false;
  }
  const std::size_t bytes = wire_bytes(summed_, exchange_.rank());
  for (const int peer : exchange_.peers())
    parts_[static_cast<std::size_t>(peer)] = exchange_.inbox(Way::out, peer, bytes);
  sum_chunk();
  for (const int peer : exchange_.peers()) exchange_.release(Way::out, peer);
  ++summed_;
  return true;
}

void Sums::sum_chunk() {
  const int rank = exchange_.rank();
  const Block block = cut_.block(summed_, rank);
  const auto size = static_cast<std::int64_t>(wire_bytes(summed_, rank));
  const SpanArgs args = {.bytes = size, .chunk = static_cast<std::int32_t>(summed_)};
  const Span span(exchange_.trace(), Lane::comm, "sum", args);
  const std::int64_t rows = length(block.rows);
  const auto written = block.elements() * static_cast<std::int64_t>(size_of(result_.out.dtype));
  if (block.elements() == 0) return;
  if (exchange_.is_played(
          {.label = "sum", .read = size * exchange_.world(), .written = written, .args = args}))
    return;
  const ConstTensorView own = source(summed_, rank);
  const std::int64_t shares = std::clamp<std::int64_t>(block.elements() / kLeastPerThread, 1,
                                                       std::min<std::int64_t>(rows, threads_));
  const auto world = parts_.size();
  base::parallel_for(shares, threads_, [&](std::int64_t i) {
    sum_rows(block, own, {rows * i / shares, rows * (i + 1) / shares},
             places_.data() + static_cast<std::size_t>(i) * world);
  });
}

// round((((part 0 + part 1) + (part 2 + part 3)) + ...) + bias): where there is a bias, the sum
// waits for it in f32.
void Sums::sum_rows(const Block& block, const ConstTensorView& own, Range rows, const void** at) {
  const int world = exchange_.world();
  const auto rank = static_cast<std::size_t>(exchange_.rank());
  const std::int64_t columns = length(block.columns);
  const TensorView out = result_.out.column_range(block.columns.begin, block.columns.end);
  const auto wire = static_cast<std::int64_t>(size_of(wire_));
  std::array<float, kColumnsAtOnce> sums;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    auto* to = static_cast<std::byte*>(out.row(block.rows.begin - result_.first_row + row));
    const std::int64_t step = result_.bias == nullptr ? columns : kColumnsAtOnce;
    for (std::int64_t column = 0; column < columns; column += step) {
      const std::int64_t count = std::min(step, columns - column);
      for (std::size_t source = 0; source < parts_.size(); ++source) {
        if (source != rank) at[source] = parts_[source] + (row * columns + column) * wire;
      }
      at[rank] = static_cast<const std::byte*>(own.row(row)) + column * wire;
      std::byte* place = to + column * static_cast<std::int64_t>(size_of(out.dtype));
      const auto n = static_cast<std::size_t>(count);
      if (result_.bias == nullptr) {
        tensor::sum_as_tree(place, out.dtype, at, world, wire_, n);
        continue;
      }
      tensor::sum_as_tree(sums.data(), Dtype::f32, at, world, wire_, n);
      const std::array<const void*, 2> both = {sums.data(),
                                               result_.bias + block.columns.begin + column};
      tensor::sum_as_tree(place, out.dtype, both.data(), 2, Dtype::f32, n);
    }
  }
}

// The block of a chunk in that of its part.
ConstTensorView Sums::source(std::uint32_t chunk, int rank) const {
  const auto part = static_cast<std::size_t>(cut_.part_of(chunk));
  const ConstTensorView& from =
      rank == exchange_.rank() ? own_[part]
                               : sources_[part * parts_.size() + static_cast<std::size_t>(rank)];
  const Cut::Part& whole = cut_.parts()[part];
  const Block block = cut_.block(chunk, rank);
  const std::int64_t row = block.rows.begin - whole.rows()[static_cast<std::size_t>(rank)].begin;
  const std::int64_t column = block.columns.begin - whole.columns.begin;
  return from.row_range(row, row + length(block.rows))
      .column_range(column, column + length(block.columns));
}

std::size_t Sums::wire_bytes(std::uint32_t chunk, int rank) const {
  return static_cast<std::size_t>(cut_.block(chunk, rank).elements()) * size_of(wire_);
}

std::uint32_t Sums::past() const {
  std::uint32_t past = summed_;
  for (const int peer : exchange_.peers()) past = std::min(past, exchange_.posted(Way::out, peer));
  return past;
}

comm::Awaited Sums::awaited() const {
  if (summed_ < made_) {
    if (const auto chunk = missing()) return *chunk;
  }
  for (const int peer : exchange_.peers()) {
    if (exchange_.posted(Way::out, peer) < cut_.chunks() && !exchange_.vacant(Way::out, peer))
      return exchange_.room_at(Way::out, peer);
  }
  if (summed_ < cut_.chunks()) {
    if (const auto chunk = missing()) return *chunk;
  }
  return exchange_.nobody();
}

// The first peer's part of the next sum that has not come.
std::optional<comm::Awaited> Sums::missing() const {
  for (const int peer : exchange_.peers()) {
    if (!exchange_.arrived(Way::out, peer)) return exchange_.chunk_from(Way::out, peer);
  }
  return {};
}

}  // namespace plait::overlap
