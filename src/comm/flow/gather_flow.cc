#include "comm/flow/gather_flow.h"

#include <algorithm>

namespace plait::comm {

GatherFlow::GatherFlow(Lanes& lanes, const Hosts& hosts, const Shares& shares, Way way)
    : lanes_(lanes),
      hosts_(hosts),
      shares_(shares),
      way_(way),
      received_(hands_on() ? static_cast<std::size_t>(lanes.world()) : 0) {
  for (const int mate : hosts.mates()) {
    to_mates_.emplace_back(hosts, shares, lanes.rank(), MateBlocks::First::this_host);
    from_mates_.emplace_back(hosts, shares, mate, MateBlocks::First::this_host);
  }
}

void GatherFlow::begin() {
  ready_ = 0;
  own_chunks_ = shares_.chunks(lanes_.rank());
  to_send_ = hosts_.counterparts().size() * own_chunks_;
  to_take_ = 0;
  for (const int counterpart : hosts_.counterparts()) to_take_ += shares_.chunks(counterpart);
  if (!hands_on()) return;
  std::fill(received_.begin(), received_.end(), 0U);
  for (MateBlocks& blocks : to_mates_) blocks.begin();
  for (MateBlocks& blocks : from_mates_) blocks.begin();
}

bool GatherFlow::step_once() {
  bool moved = false;
  for (std::size_t i = 0; i < to_mates_.size(); ++i) {
    moved |= send_to_mate(i);
    moved |= take_from_mate(i);
  }
  if (to_send_ + to_take_ == 0) return moved;
  for (const int counterpart : hosts_.counterparts()) {
    moved |= send_across(counterpart);
    moved |= take_across(counterpart);
  }
  return moved;
}

// A mate gets what this rank has: its own blocks, and what has come from other hosts.
bool GatherFlow::send_to_mate(std::size_t index) {
  MateBlocks& next = to_mates_[index];
  const int mate = hosts_.mates()[index];
  if (next.done()) return false;
  const std::uint32_t chunk = next.chunk();
  const int owner = next.owner();
  const bool is_own = owner == lanes_.rank();
  if (chunk >= (is_own ? ready_ : received(owner)) || !lanes_.vacant(way_, mate)) return false;
  send_block(lanes_, {.way = way_, .peer = mate, .chunk = chunk},
             is_own ? shares_.own(chunk) : ConstTensorView(shares_.place(chunk, owner)),
             shares_.handling(owner));
  next.advance();
  return true;
}

// Another host gets this rank's own blocks alone.
bool GatherFlow::send_across(int counterpart) {
  const std::uint32_t chunk = lanes_.posted(way_, counterpart);
  if (chunk >= std::min(ready_, own_chunks_) || !lanes_.vacant(way_, counterpart)) return false;
  send_block(lanes_, {.way = way_, .peer = counterpart, .chunk = chunk}, shares_.own(chunk),
             shares_.handling(lanes_.rank()));
  --to_send_;
  return true;
}

bool GatherFlow::take_from_mate(std::size_t index) {
  MateBlocks& next = from_mates_[index];
  const int mate = hosts_.mates()[index];
  if (next.done() || !lanes_.arrived(way_, mate)) return false;
  take(mate, next.chunk(), next.owner());
  next.advance();
  return true;
}

bool GatherFlow::take_across(int counterpart) {
  const std::uint32_t chunk = lanes_.taken(way_, counterpart);
  if (chunk >= shares_.chunks(counterpart) || !lanes_.arrived(way_, counterpart)) return false;
  take(counterpart, chunk, counterpart);
  --to_take_;
  return true;
}

void GatherFlow::take(int peer, std::uint32_t chunk, int owner) {
  take_block(lanes_, {.way = way_, .peer = peer, .chunk = chunk}, shares_.place(chunk, owner),
             shares_.handling(owner), chunk + 1 == shares_.chunks(owner));
  if (hands_on()) ++received_[static_cast<std::size_t>(owner)];
}

std::uint32_t GatherFlow::received() const {
  std::uint32_t least = own_chunks_;
  for (const int peer : lanes_.peers()) least = std::min(least, received(peer));
  return least;
}

std::uint32_t GatherFlow::sent() const {
  std::uint32_t least = own_chunks_;
  for (const MateBlocks& next : to_mates_)
    least = std::min(least, next.chunk() + (next.is_within_chunk() ? 1 : 0));
  for (const int counterpart : hosts_.counterparts())
    least = std::min(least, lanes_.posted(way_, counterpart));
  return least;
}

bool GatherFlow::done() const {
  for (std::size_t i = 0; i < to_mates_.size(); ++i) {
    if (!to_mates_[i].done() || !from_mates_[i].done()) return false;
  }
  return to_send_ == 0 && to_take_ == 0;
}

// A chunk that has not come, or failing that the room for one to send.
Awaited GatherFlow::awaited() const {
  for (std::size_t i = 0; i < from_mates_.size(); ++i) {
    const int mate = hosts_.mates()[i];
    if (!from_mates_[i].done() && !lanes_.arrived(way_, mate)) return lanes_.chunk_from(way_, mate);
  }
  for (const int counterpart : hosts_.counterparts()) {
    if (lanes_.taken(way_, counterpart) < shares_.chunks(counterpart) &&
        !lanes_.arrived(way_, counterpart))
      return lanes_.chunk_from(way_, counterpart);
  }
  for (std::size_t i = 0; i < to_mates_.size(); ++i) {
    const int mate = hosts_.mates()[i];
    if (!to_mates_[i].done() && !lanes_.vacant(way_, mate)) return lanes_.room_at(way_, mate);
  }
  for (const int counterpart : hosts_.counterparts()) {
    if (lanes_.posted(way_, counterpart) < own_chunks_ && !lanes_.vacant(way_, counterpart))
      return lanes_.room_at(way_, counterpart);
  }
  return lanes_.nothing_awaited();
}

}  // namespace plait::comm
