// Many streams at once: what the collectives are made of.
#pragma once

#include <vector>

#include "comm/collectives/chunks.h"
#include "comm/state.h"

namespace plait::comm {

// The peers of `rank`, from its successor on around the circle, so that not all talk to one at
// once. world 4, rank 1 → 2 3 0
inline std::vector<int> peers_from(int rank, int world) {
  std::vector<int> peers;
  for (int step = 1; step < world; ++step) peers.push_back((rank + step) % world);
  return peers;
}

template <class Streams>
bool all_done(const Streams& streams) {
  for (const auto& stream : streams) {
    if (!stream.done()) return false;
  }
  return true;
}

// The chunk that a rank waits for, or failing that the room.
inline Awaited first_awaited(const Tag& tag, const std::vector<Receiver>& receivers,
                             const std::vector<Sender>& senders) {
  for (const Receiver& receiver : receivers) {
    if (!receiver.done() && !receiver.arrived(tag)) return receiver.awaited(tag);
  }
  for (const Sender& sender : senders) {
    if (!sender.done()) return sender.awaited(tag);
  }
  return {.peer = 0, .tag = tag};
}

}  // namespace plait::comm
