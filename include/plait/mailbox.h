// Slots in which ranks leave chunks for one another.
//
//   std::byte* out = mailbox.outbox(peer, slot);     // the peer's own memory where it is mapped
//   ... write the chunk ...
//   mailbox.post(peer, slot, tag, bytes);            // from here on the peer may see it
//
//   mailbox.wait_arrived(source, slot, tag);         // or poll arrived(), see progress()
//   const std::byte* in = mailbox.inbox(source, slot);
//   ... read the chunk ...
//   mailbox.release(source, slot);                   // the source may write it again
//
// Every (source, slot) of a rank is a channel of its own with room for two chunks, so that a source
// may be one epoch ahead: back-to-back calls need no barrier. Chunks of a channel arrive in the
// order in which they were posted. A rank may post to itself.
//
// A mailbox is made by Communicator::make_mailbox, by all ranks of the communicator together, and
// belongs to it: it must not outlive it. Slots start with undefined contents. Different channels
// may be used by different threads of a rank at the same time; one channel by one thread at a time.
//
// The addresses that outbox() and inbox() give belong to desc().device: code that runs on the CPU
// touches them only where that is kCpu. The transports of this build make slots there alone, and
// refuse to make others.
//
// Anything here may throw Error: invalid_argument for a peer, slot or size out of range, mismatch
// where the chunk that came is not the one that was expected, peer_lost and timeout (see errors).
#pragma once

#include <cstddef>

#include "plait/export.h"
#include "plait/tag.h"
#include "plait/tensor_view.h"

namespace plait {

struct MailboxDesc {
  int slots;               // per source
  std::size_t slot_bytes;  // the largest chunk
  bool poison = false;     // fill released chunks with 0xA5: tests find late readers with it
  Device device = kCpu;    // whose memory the slots are in, and which can access them

  bool operator==(const MailboxDesc&) const = default;
};

class PLAIT_EXPORT Mailbox {
 public:
  virtual ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  virtual const MailboxDesc& desc() const = 0;

  // Whether a chunk can be written to this channel now; outbox() waits for that where it is not so.
  virtual bool vacant(int peer, int slot) = 0;

  // Where the next chunk for this channel is to be written: desc().slot_bytes, 64-byte aligned.
  virtual std::byte* outbox(int peer, int slot) = 0;

  // Hands over the first `bytes` bytes of what outbox() gave. They stay there for this rank to read
  // until outbox() gives the place again; where released chunks are poisoned, until that.
  virtual void post(int peer, int slot, const Tag& tag, std::size_t bytes) = 0;

  // Whether the channel's next chunk is here. Refuses one with another tag.
  virtual bool arrived(int source, int slot, const Tag& tag) = 0;

  // The chunk that arrived; `bytes` as posted. Refused before arrived() or wait_arrived() said so.
  virtual const std::byte* inbox(int source, int slot) = 0;
  virtual std::size_t inbox_bytes(int source, int slot) = 0;

  virtual void release(int source, int slot) = 0;

  // Moves bytes where the transport needs the caller's help, and looks after the peers. Call it
  // between tiles, about every 100 µs, while there is something to wait for. It gives up as a wait
  // does: when the time between its calls in which arrived() or vacant() said no (at most 100 ms of
  // each, so that computing is no waiting) adds up to the communicator's deadline, and this rank
  // has posted and released nothing in this mailbox meanwhile.
  virtual void progress() = 0;

  // Returns when arrived() would say yes; gives up at the communicator's deadline.
  virtual void wait_arrived(int source, int slot, const Tag& tag) = 0;

 protected:
  Mailbox() = default;
};

}  // namespace plait
