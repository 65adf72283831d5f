// The channels of a mailbox in memory that several ranks have mapped: writing the outbox is the
// transfer. Waiting, and waking a rank that sleeps, are left to the mailbox.
//
// Each rank owns a region with room for what it receives, and the counters by which its peers tell
// it that they have released what it sent:
//
//   region of rank r:   released[peer][slot]                     written by `peer`
//                       header[source][slot][epoch 0, 1]         written by `source`
//                       payload[source][slot][epoch 0, 1]        written by `source`
//
// A channel counts its chunks 1, 2, 3, ...; chunk n lies in epoch n % 2. Its header holds n once it
// is complete. The source may write chunk n when chunk n - 2 has been released.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/region.h"
#include "comm/core/slot_transport.h"
#include "comm/mapped/rank_page.h"
#include "plait/mailbox.h"

namespace plait::comm {

class MappedChannels {
 public:
  // The size of each rank's region.
  static std::size_t bytes_for(const MailboxDesc& desc, int ranks);

  MappedChannels() = default;

  // `regions`: of all ranks that share the channels. `me`: this rank among them.
  MappedChannels(const MailboxDesc& desc, int me, std::vector<base::Region> regions);

  // Takes the pages from the system that this rank's channels with its peers use.
  void populate() const;

  // Memory ordering: what the peer read from chunk n - 2 it read before its release() (release
  // there, acquire here), so that writing chunk n over it is safe.
  bool has_room(int peer, int slot) {
    Outgoing& out = outgoing(peer, slot);
    if (out.posted < out.known_released + 2) return true;
    out.known_released =
        out.released->number.load(std::memory_order_acquire);  // pairs with release()
    return out.posted < out.known_released + 2;
  }

  // The place of the channel's next chunk. The channel must have room.
  std::byte* outbox(int peer, int slot) {
    const Outgoing& out = outgoing(peer, slot);
    return out.chunks[(out.posted + 1) % 2].payload;
  }

  // Memory ordering: payload, tag and size are written before the number (release), which
  // has_come() reads (acquire): a rank that sees the number sees the chunk.
  void post(int peer, int slot, const Tag& tag, std::size_t bytes) {
    Outgoing& out = outgoing(peer, slot);
    const std::uint64_t number = ++out.posted;
    Header& header = *out.chunks[number % 2].header;
    header.bytes = bytes;
    header.tag = tag;
    header.number.store(number, std::memory_order_release);  // pairs with has_come()
  }

  bool has_come(int source, int slot) const {
    const std::uint64_t number = incoming(source, slot).taken + 1;
    return next_chunk(source, slot).header->number.load(std::memory_order_acquire) ==
           number;  // pairs with post()
  }

  // The chunk that has come, if one has; see has_come(). What the load of its number does not
  // change is read before it, and only once.
  Arrival arrival(int source, int slot) const {
    const Incoming& in = incoming(source, slot);
    const std::uint64_t number = in.taken + 1;
    const Chunk chunk = in.chunks[number % 2];
    if (chunk.header->number.load(std::memory_order_acquire) != number) return {};  // as has_come()
    return {.data = chunk.payload, .bytes = chunk.header->bytes, .tag = &chunk.header->tag};
  }

  // Gives back the chunk that has come; false: none has.
  bool release(int source, int slot) {
    Incoming& in = incoming_[source * desc_.slots + slot];
    const std::uint64_t number = in.taken + 1;
    Released* const released = in.released;
    if (in.chunks[number % 2].header->number.load(std::memory_order_acquire) != number)
      return false;
    in.taken = number;
    released->number.store(number, std::memory_order_release);  // pairs with has_room()
    return true;
  }

  // The chunk that was posted last, as its reader has left it; null until it is released.
  //
  // Memory ordering: the reader wrote it before release(), whose number is read here (acquire).
  const std::byte* answer(int peer, int slot);

  std::size_t held_bytes() const { return regions_.empty() ? 0 : regions_[me_].bytes(); }

 private:
  // A line of its own, apart from the payloads: a processor that fetches ahead while it writes or
  // reads one payload would otherwise take the flag of the next from under its writer.
  struct alignas(kLine) Header {
    std::atomic<std::uint64_t> number;
    std::uint64_t bytes;
    Tag tag;
  };
  static_assert(sizeof(Header) == kLine);

  struct Chunk {
    Header* header;
    std::byte* payload;
  };

  struct alignas(kLine) Released {
    std::atomic<std::uint64_t> number;
  };

  // This rank's private books; a line each, since different threads may work on different channels.
  struct alignas(kLine) Outgoing {
    Chunk chunks[2];
    const Released* released;  // in this rank's region
    std::uint64_t posted = 0;
    std::uint64_t known_released = 0;  // spares reading a line that the peer writes
  };
  struct alignas(kLine) Incoming {
    Chunk chunks[2];
    Released* released;  // in the source's region
    std::uint64_t taken = 0;
  };

  Outgoing& outgoing(int peer, int slot) { return outgoing_[peer * desc_.slots + slot]; }
  const Incoming& incoming(int source, int slot) const {
    return incoming_[source * desc_.slots + slot];
  }
  const Chunk& next_chunk(int source, int slot) const {
    const Incoming& in = incoming(source, slot);
    return in.chunks[(in.taken + 1) % 2];
  }
  Chunk chunk_in(int owner, int source, int slot, int epoch) const;
  Released* released_in(int owner, int peer, int slot) const;

  MailboxDesc desc_ = {};
  int me_ = 0;
  std::vector<base::Region> regions_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
};

}  // namespace plait::comm
