#include "overlap/spread.h"

#include <algorithm>

#include "overlap/copy_block.h"

namespace plait::overlap {
namespace {

template <class View>
View block_of(const View& matrix, const Block& block, std::int64_t first_row) {
  return matrix.row_range(block.rows.begin - first_row, block.rows.end - first_row)
      .column_range(block.columns.begin, block.columns.end);
}

}  // namespace

void Spread::step() {
  for (bool moved = true; moved;) {
    moved = false;
    for (const int peer : exchange_.peers()) {
      moved |= send_next(peer);
      moved |= receive_next(peer);
    }
  }
}

bool Spread::send_next(int peer) {
  const std::uint32_t chunk = exchange_.posted(way_, peer);
  if (chunk >= made_ || !exchange_.vacant(way_, peer)) return false;
  const Block block = cut_.block(chunk, exchange_.rank());
  const auto size = static_cast<std::int64_t>(bytes(chunk, exchange_.rank()));
  const SpanArgs args = {.bytes = size, .peer = peer, .chunk = static_cast<std::int32_t>(chunk)};
  const Span span(exchange_.trace(), Lane::comm, "copy", args);
  if (!exchange_.is_played(
          {.label = "copy", .read = size, .written = size, .args = args, .to_peer = true}))
    copy_block(block_of(what_.own, block, what_.first_row), exchange_.box(way_, peer));
  exchange_.post(way_, peer, bytes(chunk, exchange_.rank()));
  return true;
}

bool Spread::receive_next(int peer) {
  const std::uint32_t chunk = exchange_.taken(way_, peer);
  if (chunk >= cut_.chunks() || !exchange_.arrived(way_, peer)) return false;
  const std::byte* const came = exchange_.inbox(way_, peer, bytes(chunk, peer));
  const auto size = static_cast<std::int64_t>(bytes(chunk, peer));
  const SpanArgs args = {.bytes = size, .peer = peer, .chunk = static_cast<std::int32_t>(chunk)};
  const Span span(exchange_.trace(), Lane::comm, "take", args);
  if (!exchange_.is_played({.label = "take", .read = size, .written = size, .args = args}))
    copy_block(came, block_of(what_.all, cut_.block(chunk, peer), 0));
  exchange_.release(way_, peer);
  return true;
}

std::uint32_t Spread::received() const {
  std::uint32_t least = cut_.chunks();
  for (const int peer : exchange_.peers()) least = std::min(least, received(peer));
  return least;
}

std::uint32_t Spread::sent() const {
  std::uint32_t least = cut_.chunks();
  for (const int peer : exchange_.peers()) least = std::min(least, exchange_.posted(way_, peer));
  return least;
}

comm::Awaited Spread::awaited() const {
  for (const int peer : exchange_.peers()) {
    if (received(peer) < cut_.chunks() && !exchange_.arrived(way_, peer))
      return exchange_.chunk_from(way_, peer);
  }
  for (const int peer : exchange_.peers()) {
    if (exchange_.posted(way_, peer) < cut_.chunks() && !exchange_.vacant(way_, peer))
      return exchange_.room_at(way_, peer);
  }
  return exchange_.nobody();
}

}  // namespace plait::overlap
