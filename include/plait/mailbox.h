// Slots through which ranks exchange chunks.
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
// Every (source, slot) of a rank is a separate channel with room for two chunks. A source may thus
// be one epoch ahead, and consecutive calls need no barrier. Chunks of a channel arrive in the
// order in which they were posted. A rank may post to itself.
//
// All ranks of a communicator make a mailbox together, by Communicator::make_mailbox. It must not
// outlive the communicator. Slots start with undefined contents. Threads of a rank may use
// different channels at the same time, but each channel only one thread at a time.
//
// The addresses that outbox() and inbox() return belong to desc().device: CPU code may touch them
// only if this is kCpu. The transports of this build make slots only in the CPU's memory, and
// refuse other devices.
//
// Any call may throw Error: invalid_argument for a peer, slot or size out of range, mismatch if
// another chunk has arrived than was expected, peer_lost and timeout (see error.h).
#pragma once

#include <cstddef>
#include <memory>

#include "plait/export.h"
#include "plait/tag.h"
#include "plait/tensor_view.h"

namespace plait {

struct MailboxDesc {
  int slots;               // per source
  std::size_t slot_bytes;  // the largest chunk
  bool poison = false;     // fill released chunks with 0xA5, to find readers that are late
  Device device = kCpu;    // in whose memory the slots are, and which can access them

  bool operator==(const MailboxDesc&) const = default;
};

class PLAIT_EXPORT Mailbox final {
 public:
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  const MailboxDesc& desc() const;

  // True if a chunk can be written to this channel now. If not, outbox() waits until it can.
  bool vacant(int peer, int slot);

  // The place of the next chunk for this channel: desc().slot_bytes, 64-byte aligned.
  std::byte* outbox(int peer, int slot);

  // Hands over the first `bytes` bytes of the memory that outbox() returned. This rank may still
  // read them until outbox() returns the same memory again, or, with `poison`, until the peer
  // releases the chunk.
  void post(int peer, int slot, const Tag& tag, std::size_t bytes);

  // True if the channel's next chunk has arrived. A chunk with another tag is an Error{mismatch}.
  bool arrived(int source, int slot, const Tag& tag);

  // The chunk that has arrived; `bytes` as posted. Refused until arrived() has returned true or
  // wait_arrived() has returned.
  const std::byte* inbox(int source, int slot);
  std::size_t inbox_bytes(int source, int slot);

  void release(int source, int slot);

  // Moves bytes if the transport needs the caller's help, and checks the peers. Call it between
  // tiles, about every 100 µs, while there is something to wait for. It has a deadline as waits do.
  // The time between two calls counts if arrived() or vacant() has returned false in it, but at
  // most 100 ms, since computing is not waiting. If these times add up to the communicator's
  // deadline, and this rank has not posted or released in this mailbox meanwhile, it throws.
  void progress();

  // Returns when arrived() would return true; throws at the communicator's deadline.
  void wait_arrived(int source, int slot, const Tag& tag);

  class State;  // plait's own side of it
  explicit Mailbox(std::unique_ptr<State> state);
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace plait
