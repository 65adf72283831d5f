// How the chunks of one mailbox move: what each transport implements. The mailbox asks it, and
// adds checks, waiting and patience (mailbox.h).
//
// A channel, (peer, slot) in one direction, has room for two chunks, and brings them in the order
// in which they were posted. Arguments are within the mailbox's description. Threads of a rank may
// use different channels at once. The destructor doesn't throw and doesn't wait for ever; what was
// posted goes out.
#pragma once

#include <cstddef>

#include "comm/core/wait.h"
#include "plait/tag.h"

namespace plait::comm {

// The place of the next chunk for a channel.
struct Vacancy {
  std::byte* place = nullptr;  // null: there is no room yet
  Nanoseconds due = kNever;    // when there will be; kNever: that is not known
};

// The channel's next chunk.
struct Arrival {
  std::byte* data = nullptr;  // null: it has not come
  std::size_t bytes = 0;
  const Tag* tag = nullptr;  // until the transport is called again
  Nanoseconds due = 0;       // it counts as here from then on; 0: it does now
};

class SlotTransport {
 public:
  SlotTransport() = default;
  SlotTransport(const SlotTransport&) = delete;
  SlotTransport& operator=(const SlotTransport&) = delete;
  virtual ~SlotTransport() = default;

  virtual Vacancy outbox(int peer, int slot) = 0;

  // Hands over what was written to the outbox. False: there is no room, and nothing was done.
  virtual bool post(int peer, int slot, const Tag& tag, std::size_t bytes) = 0;

  virtual Arrival inbox(int source, int slot) = 0;

  // Gives the place of the chunk in the inbox back. False: there is none.
  virtual bool release(int source, int slot) = 0;

  // Moves bytes where the transport needs the caller's help, and not too often: between tiles. The
  // second does so in any case, for a caller that does not ask again.
  virtual void move() {}
  virtual void move_surely() { move(); }

  // Takes all memory from the system now. Otherwise each page comes when it is first touched, which
  // in the middle of a product takes longer than the chunk.
  virtual void populate() {}

  // Bytes of this rank's memory that the slots take.
  virtual std::size_t held_bytes() const = 0;

  // True if a chunk's reader may answer in its place: where both ends have mapped the slot, what
  // the reader writes over the chunk is there for the poster to read, and the memory that has just
  // moved to the reader's cache need not be written anew.
  virtual bool takes_answers() const { return false; }

  // The last chunk that was posted, as its reader has left it; null until it is released.
  virtual const std::byte* answer(int /*peer*/, int /*slot*/) { return nullptr; }
};

}  // namespace plait::comm
