#include "comm/engines/mpi/plugin/chunk_counts.h"

#include <cstddef>

namespace plait::comm::mpi {

void ChunkCounts::add(Channels& mailbox) {
  const std::lock_guard lock(mutex_);
  mailboxes_.push_back(&mailbox);
}

void ChunkCounts::remove(Channels& mailbox) {
  const std::lock_guard lock(mutex_);
  if (std::erase(mailboxes_, &mailbox) == 0) return;
  for (std::size_t peer = 0; peer < come_before_.size(); ++peer)
    come_before_[peer] += mailbox.come_from(static_cast<int>(peer));
}

// The difference of two counts is right also where one of them has gone on at 0.
bool ChunkCounts::have_come(int peer, std::uint32_t sent) {
  const std::lock_guard lock(mutex_);
  std::uint32_t come = come_before_[peer];
  for (Channels* mailbox : mailboxes_) come += mailbox->come_from(peer);
  return static_cast<std::int32_t>(sent - come) <= 0;
}

}  // namespace plait::comm::mpi
