// The patience of a rank that polls a mailbox instead of waiting in it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "comm/core/group.h"
#include "comm/core/patience.h"

namespace plait::comm {

// Does for a rank that polls (arrived() or vacant(), then progress()) what the wait loop does for
// one that sleeps: publishes which rank it waits for, notices ranks that have died, left or are in
// another call, and gives up at the deadline. Several threads of a rank may poll at once.
class Polling {
 public:
  Polling(Group& group, int slots) : group_(group), slots_(slots), published_(group) {}

  // "Not yet" was the answer. Only the first since the last poll() is kept: all are asked again.
  void note_refusal(int peer, int slot, const Tag& tag, bool room) {
    if (refused_.load(std::memory_order_relaxed) == 0) [[unlikely]]
      refused_.store(packed(peer, slot, tag, room), std::memory_order_relaxed);
  }

  // A chunk was posted or released: what moves is no reason to give up.
  void note_move() {
    if (!moved_.load(std::memory_order_relaxed)) [[unlikely]]
      moved_.store(true, std::memory_order_relaxed);
  }

  // Cheap: for every progress(). Polls the peers too now and then. While one thread does, the
  // others do nothing here.
  void poll();

  // Tells the peers that this rank waits for none of them; called before the group may go.
  void end() noexcept { published_.end(); }

 private:
  std::uint64_t packed(int peer, int slot, const Tag& tag, bool room) const;
  Awaited unpacked(std::uint64_t refused) const;
  void poll_peers(Nanoseconds now);

  Group& group_;
  int slots_;

  // Memory ordering of both: relaxed. They say which rank is waited for and that something has
  // moved; no other memory is read because of them, and what one thread overwrites for another is
  // asked for again.
  std::atomic<std::uint64_t> refused_{0};  // the slot asked for in vain since the last poll
  std::atomic<bool> moved_{false};         // since the last poll

  std::mutex polling_;  // for what follows
  std::optional<Patience> patience_;
  std::uint64_t missing_ = 0;  // the slot asked for in vain since the peers were polled
  PublishedWait published_;
  std::uint64_t given_up_ = 0;  // the slot that was missing when its peer was seen to have left
};

}  // namespace plait::comm
