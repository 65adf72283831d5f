// How many chunks the ranks of a group have sent to each other, in all of its mailboxes. MPI keeps
// the order of messages, but the bytes of a large one may come long after those of a later one. A
// rank's notices therefore hold the count of its chunks before them: as long as fewer have come,
// some are on their way.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "comm/engines/mpi/plugin/channels.h"

namespace plait::comm::mpi {

class ChunkCounts {
 public:
  explicit ChunkCounts(int world) : sent_(world), come_before_(world) {}

  // A mailbox counts from its beginning to its end, and what has come to it counts afterwards too.
  void add(Channels& mailbox);
  void remove(Channels& mailbox);

  // Relaxed: what a rank says after a chunk is said by the thread that has sent the chunk.
  void note_sent(int peer) { sent_[peer].fetch_add(1, std::memory_order_relaxed); }
  std::uint32_t sent_to(int peer) const { return sent_[peer].load(std::memory_order_relaxed); }

  // True if the peer's first `sent` chunks are here or have been.
  bool have_come(int peer, std::uint32_t sent);

 private:
  std::vector<std::atomic<std::uint32_t>> sent_;  // by peer
  std::mutex mutex_;
  std::vector<Channels*> mailboxes_;
  std::vector<std::uint32_t> come_before_;  // by peer: to mailboxes that have ended
};

}  // namespace plait::comm::mpi
