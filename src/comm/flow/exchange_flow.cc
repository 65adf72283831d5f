#include "comm/flow/exchange_flow.h"

namespace plait::comm {

bool ExchangeFlow::step_once() {
  bool moved = false;
  for (const int peer : lanes_.peers()) {
    moved |= send_next(peer);
    moved |= take_next(peer);
  }
  return moved;
}

bool ExchangeFlow::send_next(int peer) {
  const std::uint32_t chunk = lanes_.posted(Way::out, peer);
  if (chunk >= parcels_.chunks_to(peer) || !lanes_.vacant(Way::out, peer)) return false;
  send_block(lanes_, {.way = Way::out, .peer = peer, .chunk = chunk},
             parcels_.outgoing(chunk, peer), parcels_.handling_to(peer));
  return true;
}

bool ExchangeFlow::take_next(int peer) {
  const std::uint32_t chunk = lanes_.taken(Way::out, peer);
  if (chunk >= parcels_.chunks_from(peer) || !lanes_.arrived(Way::out, peer)) return false;
  take_block(lanes_, {.way = Way::out, .peer = peer, .chunk = chunk},
             parcels_.incoming(chunk, peer), parcels_.handling_from(peer),
             chunk + 1 == parcels_.chunks_from(peer));
  return true;
}

bool ExchangeFlow::done() const {
  for (const int peer : lanes_.peers()) {
    if (lanes_.posted(Way::out, peer) < parcels_.chunks_to(peer)) return false;
    if (lanes_.taken(Way::out, peer) < parcels_.chunks_from(peer)) return false;
  }
  return true;
}

Awaited ExchangeFlow::awaited() const {
  for (const int peer : lanes_.peers()) {
    if (lanes_.taken(Way::out, peer) < parcels_.chunks_from(peer) &&
        !lanes_.arrived(Way::out, peer))
      return lanes_.chunk_from(Way::out, peer);
  }
  for (const int peer : lanes_.peers()) {
    if (lanes_.posted(Way::out, peer) < parcels_.chunks_to(peer))
      return lanes_.room_at(Way::out, peer);
  }
  return lanes_.nothing_awaited();
}

}  // namespace plait::comm
