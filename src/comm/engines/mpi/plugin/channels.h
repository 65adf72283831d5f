// The staging memory of a mailbox and the requests that move it: two chunks for each direction of
// each (peer, slot).
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/region.h"
#include "comm/engines/mpi/plugin/members.h"
#include "plait/mailbox.h"

namespace plait::comm::mpi {

// A chunk's first bytes on its way.
struct alignas(64) ChunkHeader {
  std::uint64_t bytes;
  Tag tag;
};

// A chunk's place on one side.
struct Staged {
  ChunkHeader* header = nullptr;
  MPI_Request whole = MPI_REQUEST_NULL;  // persistent: a full slot out, or any chunk in
  MPI_Request part = MPI_REQUEST_NULL;   // a shorter chunk out
  bool complete = true;                  // MPI is done with it. Out: may be written; in: is here
  bool is_unsent = false;                // out: the peer's process has ended, and MPI has nothing
  std::uint32_t begun = 0;               // in: how many chunks it was ready for, under hold_mpi()

  std::byte* payload() const { return reinterpret_cast<std::byte*>(header + 1); }
};

// Chunk n of a channel lies in epoch n % 2, and the first is chunk 1.
struct Channel {
  Staged staged[2];
  std::uint64_t count = 0;  // posted, or taken
  Staged& next() { return staged[(count + 1) % 2]; }
};

class Channels {
 public:
  Channels(Members members, const MailboxDesc& desc);
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  // To be called when idle() only: MPI must not lose a request that is active, nor its memory.
  ~Channels();

  const Members& members() const { return members_; }
  std::size_t bytes() const { return staging_.bytes(); }
  void populate() const { staging_.populate(0, staging_.bytes()); }

  Channel& outgoing(int peer, int slot) { return outgoing_[peer * desc_.slots + slot]; }
  Channel& incoming(int source, int slot) { return incoming_[source * desc_.slots + slot]; }

  // Begins to receive: chunks that come before wait in MPI's queues.
  void open();

  // True if MPI is done with it.
  bool test(Staged& staged);

  // Sends what has been written into the place. Where the peer's process has ended, nothing is sent
  // and the place is never free again.
  void send(Staged& staged, int peer, int slot);
  void receive_into(Staged& staged);

  // How many chunks of the peer are here or have been. Any thread may ask.
  std::uint32_t come_from(int peer);

  bool all_taken(int peer);  // whether all that was sent to the peer has been taken up
  void swallow_arrivals();   // receives again into every place where a chunk has come
  void cancel_receives();
  bool idle();  // no request is active

 private:
  std::size_t stride() const;
  void prepare(int peer, int slot, int epoch);

  Members members_;
  MailboxDesc desc_;
  base::Region staging_;
  std::vector<Channel> outgoing_;
  std::vector<Channel> incoming_;
};

}  // namespace plait::comm::mpi
