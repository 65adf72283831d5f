// The slots of one mailbox of all modelled ranks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/round_up.h"
#include "comm/core/wait.h"
#include "plait/buffer.h"
#include "plait/mailbox.h"
#include "plait/tag.h"

namespace plait::comm::modelled {

struct Slots {
  // One of the two chunks that a channel has room for.
  struct Entry {
    base::Nanoseconds due = 0;      // when the chunk is there
    base::Nanoseconds room_at = 0;  // when the chunk before it was given back
    std::uint64_t bytes = 0;
    std::uint32_t chunk = 0;
    std::uint32_t call = 0;  // its tag, but for the chunk: see number_of()
  };
  struct Channel {
    std::uint32_t posted = 0;
    std::uint32_t released = 0;
    std::array<Entry, 2> entries = {};

    Entry& entry(std::uint32_t number) { return entries[number % 2]; }
  };

  Slots(const MailboxDesc& of, int ranks, bool without_storage)
      : desc(of),
        world(static_cast<std::size_t>(ranks)),
        no_storage(without_storage),
        memory_(world),
        channels_(lanes()),
        due_(lanes()),
        room_at_(lanes()) {}

  // A rank's channels of one slot are made when one of them is first used: most mailboxes of most
  // ranks are never used, and most slots of the others.
  Channel& channel(int source, int destination, int slot) {
    std::vector<Channel>& own = channels_[lane(source, slot)];
    if (own.empty()) own.resize(world);
    return own[static_cast<std::size_t>(destination)];
  }

  // When a channel's next chunk will have arrived, and when it has room for one; kNever: that
  // depends on the other end. A rank that polls asks all channels again and again, so the answers
  // are stored side by side.
  base::Nanoseconds due(int source, int destination, int slot) const {
    const Times& own = due_[lane(destination, slot)];
    return own.empty() ? kNever : own[static_cast<std::size_t>(source)];
  }
  base::Nanoseconds room_at(int source, int destination, int slot) const {
    const Times& own = room_at_[lane(source, slot)];
    return own.empty() ? 0 : own[static_cast<std::size_t>(destination)];
  }

  // To be called after a chunk was posted to a channel or released.
  void note_change(int source, int destination, int slot);

  std::byte* payload(int source, int destination, int slot, std::uint32_t number);

  // Tags are stored once and numbered: thousands of ranks have millions of entries, and their tags
  // differ only in the number of the chunk.
  std::uint32_t number_of(Tag tag);
  Tag tag_of(const Entry& entry) const;

  MailboxDesc desc;
  std::size_t world;
  bool no_storage;

 private:
  using Times = std::vector<base::Nanoseconds>;

  std::size_t lanes() const { return world * static_cast<std::size_t>(desc.slots); }
  std::size_t lane(int rank, int slot) const {
    return static_cast<std::size_t>(rank) * static_cast<std::size_t>(desc.slots) +
           static_cast<std::size_t>(slot);
  }
  std::size_t padded() const { return base::round_up(desc.slot_bytes, 64); }

  std::vector<Buffer> memory_;  // by source; no_storage: all share the first
  std::vector<Tag> calls_;
  std::vector<std::vector<Channel>> channels_;  // by source and slot: to each destination
  std::vector<Times> due_;                      // by destination and slot: from each source
  std::vector<Times> room_at_;                  // by source and slot: to each destination
};

}  // namespace plait::comm::modelled
