// A mailbox in memory that all ranks of the group have mapped: writing the outbox is the transfer.
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

#include <memory>
#include <vector>

#include "comm/mailbox_base.h"
#include "comm/mapped/mapped_group.h"

namespace plait::comm {

class MappedMailbox final : public MailboxBase {
 public:
  // Collective.
  MappedMailbox(std::shared_ptr<MappedGroup> group, const MailboxDesc& desc, Rendezvous& rendezvous,
                const Rendezvous::Watch& watch);
  ~MappedMailbox() override { end_polling(); }

  bool vacant(int peer, int slot) override;
  std::byte* outbox(int peer, int slot) override;
  void post(int peer, int slot, const Tag& tag, std::size_t bytes) override;
  bool arrived(int source, int slot, const Tag& tag) override;
  const std::byte* inbox(int source, int slot) override;
  std::size_t inbox_bytes(int source, int slot) override;
  void release(int source, int slot) override;
  bool takes_answers() const override { return !desc().poison; }
  std::byte* answer_box(int source, int slot) override;
  const std::byte* answer(int peer, int slot) override;
  std::size_t held_bytes() const override { return regions_[group_->rank()].bytes(); }

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

  Outgoing& outgoing(int peer, int slot) { return outgoing_[peer * desc().slots + slot]; }
  Incoming& incoming(int source, int slot) { return incoming_[source * desc().slots + slot]; }
  const Chunk& next_chunk(int source, int slot) {
    const Incoming& in = incoming(source, slot);
    return in.chunks[(in.taken + 1) % 2];
  }
  bool has_come(const Chunk& chunk, int source, int slot);
  Chunk chunk_in(int owner, int source, int slot, int epoch) const;
  Released* released_in(int owner, int peer, int slot) const;

  std::shared_ptr<MappedGroup> group_;
  std::vector<base::Region> regions_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
};

}  // namespace plait::comm
