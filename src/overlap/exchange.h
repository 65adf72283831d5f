// What the chunks of one call go through: a mailbox, and a lane to and from every peer.
//
// A lane is a run of slots that chunks take in turn. Two ranks use the lanes between them in the
// same order, so that chunk i of a call is always in the same slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/mailbox.h"
#include "comm/virtual_clock.h"
#include "comm/wait.h"
#include "plait/mailbox.h"
#include "plait/tag.h"

namespace plait::overlap {

// Chunks go out to the ranks they belong to, and what those made of them comes back.
enum class Way : std::uint8_t { out, back };

// Chunks that may be on their way to a peer before it has released the first: enough that neither
// the link nor the reader runs dry.
inline constexpr int kSlotsPerWay = 4;
inline constexpr std::uint32_t kDepth = 2 * kSlotsPerWay;  // a slot has room for two

class Exchange {
 public:
  // For at most so many ways. Its chunks go through a mailbox that it is told of before they do.
  Exchange(comm::Group& group, int ways);

  static MailboxDesc mailbox_for(int ways, std::size_t chunk_bytes);

  // Between calls. The mailbox has been made for as many ways as the next call has, or more.
  void use(Mailbox::State& mailbox) { mailbox_ = &mailbox; }

  int rank() const { return group_.rank(); }
  int world() const { return group_.world(); }

  // The other ranks, from this one's successor on, so that not all talk to one at once.
  const std::vector<int>& peers() const { return peers_; }

  void begin(const Tag& tag);

  // Whether work with bytes is done in name only.
  bool is_played(const comm::Chore& chore) const {
    comm::VirtualClock* clock = group_.clock();
    return clock != nullptr && clock->plays(chore);
  }

  // Where this rank's work on chunks is recorded; null: nowhere.
  Trace* trace() const { return group_.trace(); }

  // These three are about the channel's next chunk.
  bool vacant(Way way, int peer) const { return mailbox_->vacant(peer, slot(way, out(way, peer))); }
  std::byte* box(Way way, int peer) { return mailbox_->outbox(peer, slot(way, out(way, peer))); }
  void post(Way way, int peer, std::size_t bytes);

  bool arrived(Way way, int source) const {
    return mailbox_->arrived(source, slot(way, in(way, source)), tag_of(in(way, source)));
  }
  // The chunk that has arrived, which must be as large as this rank has cut it.
  const std::byte* inbox(Way way, int source, std::size_t bytes) const {
    const std::uint32_t chunk = in(way, source);
    mailbox_->check_size(source, slot(way, chunk), tag_of(chunk), bytes);
    return mailbox_->inbox(source, slot(way, chunk));
  }
  void release(Way way, int source);

  // How many chunks have gone to the peer, and how many of the peer's have been released.
  std::uint32_t posted(Way way, int peer) const { return out(way, peer); }
  std::uint32_t taken(Way way, int peer) const { return in(way, peer); }

  comm::Awaited chunk_from(Way way, int source) const {
    return {.peer = source, .tag = tag_of(in(way, source))};
  }
  comm::Awaited room_at(Way way, int peer) const {
    return {.peer = peer, .tag = tag_of(out(way, peer)), .room = true};
  }
  comm::Awaited nothing_awaited() const { return comm::nothing_awaited(tag_); }

  // Between tiles: moves what the transport can't move alone, and notices lost ranks. While this
  // rank multiplies, no peer is late.
  void look_after();

  // Returns when ready() says yes; it is asked again and again, and does what can be done.
  template <class Ready, class AwaitedNow>
  void wait(Ready&& ready, AwaitedNow&& awaited) {
    comm::wait_until(
        group_,
        [&] {
          if (ready()) return true;
          mailbox_->help();
          return false;
        },
        [&] { return mailbox_->take_due(); }, awaited, &moves_);
  }

 private:
  int slot(Way way, std::uint32_t chunk) const {
    return static_cast<int>(way) * kSlotsPerWay + static_cast<int>(chunk % kSlotsPerWay);
  }
  // No chunk of one way is taken for one of the other: each has slots of its own.
  Tag tag_of(std::uint32_t chunk) const {
    Tag tag = tag_;
    tag.chunk = chunk;
    return tag;
  }
  std::size_t index(Way way, int peer) const {
    return static_cast<std::size_t>(way) * static_cast<std::size_t>(world()) +
           static_cast<std::size_t>(peer);
  }
  std::uint32_t out(Way way, int peer) const { return posted_[index(way, peer)]; }
  std::uint32_t in(Way way, int peer) const { return taken_[index(way, peer)]; }

  comm::Group& group_;
  Mailbox::State* mailbox_ = nullptr;
  std::vector<int> peers_;
  std::vector<std::uint32_t> posted_;  // by way and peer
  std::vector<std::uint32_t> taken_;
  Tag tag_;
  std::uint64_t moves_ = 0;
  base::Nanoseconds looked_at_ = 0;
};

}  // namespace plait::overlap
