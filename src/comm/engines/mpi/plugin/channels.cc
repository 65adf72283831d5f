#include "comm/engines/mpi/plugin/channels.h"

#include <climits>

#include "base/check.h"
#include "base/round_up.h"
#include "comm/engines/mpi/plugin/session.h"

namespace plait::comm::mpi {

Channels::Channels(Members members, const MailboxDesc& desc)
    : members_(std::move(members)), desc_(desc) {
  const std::size_t count = static_cast<std::size_t>(members_.size()) * desc.slots;
  staging_ = base::Region::allocate(count * 4 * stride());
  outgoing_.resize(count);
  incoming_.resize(count);
  for (int peer = 0; peer < members_.size(); ++peer) {
    for (int slot = 0; slot < desc.slots; ++slot) {
      prepare(peer, slot, 0);
      prepare(peer, slot, 1);
    }
  }
}

Channels::~Channels() {
  const auto held = hold_mpi();
  for (auto* channels : {&outgoing_, &incoming_}) {
    for (Channel& channel : *channels) {
      for (Staged& staged : channel.staged) MPI_Request_free(&staged.whole);
    }
  }
}

std::size_t Channels::stride() const {
  return sizeof(ChunkHeader) + base::round_up(desc_.slot_bytes, 64);
}

void Channels::prepare(int peer, int slot, int epoch) {
  const std::size_t channel = static_cast<std::size_t>(peer) * desc_.slots + slot;
  std::byte* base = staging_.data() + (channel * 2 + epoch) * 2 * stride();
  Staged& out = outgoing(peer, slot).staged[epoch];
  Staged& in = incoming(peer, slot).staged[epoch];
  out.header = reinterpret_cast<ChunkHeader*>(base);
  in.header = reinterpret_cast<ChunkHeader*>(base + stride());
  const int bytes = static_cast<int>(sizeof(ChunkHeader) + desc_.slot_bytes);
  const int process = members_.processes[peer];
  const auto held = hold_mpi();
  check_mpi(MPI_Ssend_init(out.header, bytes, MPI_BYTE, process, members_.tag_of(peer, slot),
                           members_.for_chunks(), &out.whole),
            "MPI_Ssend_init");
  check_mpi(MPI_Recv_init(in.header, bytes, MPI_BYTE, process, members_.my_tag(slot),
                          members_.for_chunks(), &in.whole),
            "MPI_Recv_init");
}

void Channels::open() {
  for (Channel& channel : incoming_) {
    // Chunk 1 lies in epoch 1: its receive must be the first to be matched.
    receive_into(channel.staged[1]);
    receive_into(channel.staged[0]);
  }
}

bool Channels::test(Staged& staged) {
  if (staged.complete || staged.is_unsent) return staged.complete;
  const auto held = hold_mpi();
  MPI_Request& request = staged.part != MPI_REQUEST_NULL ? staged.part : staged.whole;
  int done = 0;
  check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  staged.complete = done != 0;
  return staged.complete;
}

void Channels::send(Staged& staged, int peer, int slot) {
  const std::size_t bytes = staged.header->bytes;
  staged.complete = false;
  staged.is_unsent = !members_.may_send_to(peer);
  if (staged.is_unsent) return;
  const auto held = hold_mpi();
  if (bytes == desc_.slot_bytes) {
    check_mpi(MPI_Start(&staged.whole), "MPI_Start");
  } else {
    check_mpi(MPI_Issend(staged.header, static_cast<int>(sizeof(ChunkHeader) + bytes), MPI_BYTE,
                         members_.processes[peer], members_.tag_of(peer, slot),
                         members_.for_chunks(), &staged.part),
              "MPI_Issend");
  }
}

void Channels::receive_into(Staged& staged) {
  const auto held = hold_mpi();
  check_mpi(MPI_Start(&staged.whole), "MPI_Start");
  staged.complete = false;
  ++staged.begun;
}

// It asks MPI without completing a request, which is for the thread that uses the channel. One that
// is complete already counts as done.
std::uint32_t Channels::come_from(int peer) {
  const auto held = hold_mpi();
  std::uint32_t chunks = 0;
  for (int slot = 0; slot < desc_.slots; ++slot) {
    for (const Staged& staged : incoming(peer, slot).staged) {
      int done = 0;
      check_mpi(MPI_Request_get_status(staged.whole, &done, MPI_STATUS_IGNORE),
                "MPI_Request_get_status");
      chunks += staged.begun - (done != 0 ? 0 : 1);
    }
  }
  return chunks;
}

bool Channels::all_taken(int peer) {
  for (int slot = 0; slot < desc_.slots; ++slot) {
    for (Staged& staged : outgoing(peer, slot).staged) {
      if (!test(staged)) return false;
    }
  }
  return true;
}

void Channels::swallow_arrivals() {
  for (Channel& channel : incoming_) {
    for (Staged& staged : channel.staged) {
      if (test(staged)) receive_into(staged);
    }
  }
}

void Channels::cancel_receives() {
  const auto held = hold_mpi();
  for (Channel& channel : incoming_) {
    for (Staged& staged : channel.staged) {
      if (!staged.complete) MPI_Cancel(&staged.whole);
    }
  }
}

// Every request is tested each time, because testing completes it.
bool Channels::idle() {
  bool all = true;
  for (auto* channels : {&outgoing_, &incoming_}) {
    for (Channel& channel : *channels) {
      for (Staged& staged : channel.staged) all = (staged.is_unsent || test(staged)) && all;
    }
  }
  return all;
}

}  // namespace plait::comm::mpi
