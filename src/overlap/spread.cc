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

template <class F>
void Spread::for_neighbours(const F& f) const {
  for (const int mate : hosts_.mates()) f(mate);
  for (const int counterpart : hosts_.counterparts()) f(counterpart);
}

Spread::Item Spread::item_at(std::uint32_t place, int source) const {
  const int turn = static_cast<int>(place % per_lane(source));
  const int host = is_mate(source) ? hosts_.host_at(turn) : hosts_.of(source);
  return {.chunk = place / per_lane(source), .owner = hosts_.counterpart_of(source, host)};
}

void Spread::step() {
  for (bool moved = true; moved;) {
    moved = false;
    for_neighbours([&](int peer) {
      moved |= send_next(peer);
      moved |= receive_next(peer);
    });
  }
}

bool Spread::send_next(int peer) {
  const std::uint32_t place = exchange_.posted(way_, peer);
  const int rank = exchange_.rank();
  // A mate gets what this rank has, another host only this rank's own.
  const Item item = is_mate(peer) ? item_at(place, rank) : Item{.chunk = place, .owner = rank};
  const bool is_own = item.owner == rank;
  if (item.chunk >= (is_own ? made_ : received(item.owner)) || !exchange_.vacant(way_, peer))
    return false;
  const Block block = cut_.block(item.chunk, item.owner);
  const auto size = static_cast<std::int64_t>(bytes(item.chunk, item.owner));
  const SpanArgs args = {
      .bytes = size, .peer = peer, .chunk = static_cast<std::int32_t>(item.chunk)};
  const Span span(exchange_.trace(), Lane::comm, "copy", args);
  if (!exchange_.is_played(
          {.label = "copy", .read = size, .written = size, .args = args, .to_peer = true})) {
    copy_block(is_own ? block_of(what_.own, block, what_.first_row)
                      : block_of(ConstTensorView(what_.all), block, 0),
               exchange_.box(way_, peer));
  }
  exchange_.post(way_, peer, bytes(item.chunk, item.owner));
  return true;
}

bool Spread::receive_next(int peer) {
  const Item item = item_at(exchange_.taken(way_, peer), peer);
  if (item.chunk >= cut_.chunks() || !exchange_.arrived(way_, peer)) return false;
  const std::byte* const came = exchange_.inbox(way_, peer, bytes(item.chunk, item.owner));
  const auto size = static_cast<std::int64_t>(bytes(item.chunk, item.owner));
  const SpanArgs args = {
      .bytes = size, .peer = peer, .chunk = static_cast<std::int32_t>(item.chunk)};
  const Span span(exchange_.trace(), Lane::comm, "take", args);
  if (!exchange_.is_played({.label = "take", .read = size, .written = size, .args = args}))
    copy_block(came, block_of(what_.all, cut_.block(item.chunk, item.owner), 0));
  exchange_.release(way_, peer);
  return true;
}

// A lane brings `per_lane` blocks of each chunk, of which this rank's is the one at its turn.
std::uint32_t Spread::received(int rank) const {
  const int turn = hosts_.turn_of(hosts_.of(rank));
  const int mate = hosts_.counterpart_of(rank, hosts_.here());
  if (mate == exchange_.rank()) return exchange_.taken(way_, rank);
  const std::uint32_t all = per_lane(mate);
  return (exchange_.taken(way_, mate) + all - 1 - static_cast<std::uint32_t>(turn)) / all;
}

std::uint32_t Spread::received() const {
  std::uint32_t least = cut_.chunks();
  for_neighbours(
      [&](int peer) { least = std::min(least, exchange_.taken(way_, peer) / per_lane(peer)); });
  return least;
}

std::uint32_t Spread::sent() const {
  std::uint32_t least = cut_.chunks();
  for_neighbours(
      [&](int peer) { least = std::min(least, exchange_.posted(way_, peer) / per_lane(peer)); });
  return least;
}

comm::Awaited Spread::awaited() const {
  comm::Awaited awaited = exchange_.nothing_awaited();
  bool is_found = false;
  const auto find = [&](bool is_it, const comm::Awaited& one) {
    if (is_it && !is_found) awaited = one;
    is_found = is_found || is_it;
  };
  for_neighbours([&](int peer) {
    find(exchange_.taken(way_, peer) < cut_.chunks() * per_lane(peer) &&
             !exchange_.arrived(way_, peer),
         exchange_.chunk_from(way_, peer));
  });
  for_neighbours([&](int peer) {
    find(exchange_.posted(way_, peer) < cut_.chunks() * per_lane(peer) &&
             !exchange_.vacant(way_, peer),
         exchange_.room_at(way_, peer));
  });
  return awaited;
}

}  // namespace plait::overlap
