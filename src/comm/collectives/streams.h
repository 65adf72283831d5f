// Many streams at once: what the collectives are made of.
#pragma once

#include <ranges>
#include <vector>

#include "comm/collectives/chunks.h"
#include "comm/state.h"

namespace plait::comm {

using Senders = std::vector<Sender>;
using Askers = std::vector<Asker>;
using Receivers = std::vector<Receiver>;

// The peers of a rank, from its successor on around the circle, so that not all talk to one at
// once. world 4, rank 1 → 2 3 0
inline auto peers_of(const Group& group) {
  const int rank = group.rank();
  const int world = group.world();
  return std::views::iota(1, world) |
         std::views::transform([rank, world](int step) { return (rank + step) % world; });
}

template <class Streams>
bool all_done(const Streams& streams) {
  for (const auto& stream : streams) {
    if (!stream.done()) return false;
  }
  return true;
}

// The chunk that a rank waits for, or failing that the room.
inline Awaited first_awaited(const Tag& tag, const Receivers& receivers, const Senders& senders) {
  for (const Receiver& receiver : receivers) {
    if (!receiver.done() && !receiver.arrived(tag)) return receiver.awaited(tag);
  }
  for (const Sender& sender : senders) {
    if (!sender.done()) return sender.awaited(tag);
  }
  return nothing_awaited(tag);
}

}  // namespace plait::comm
