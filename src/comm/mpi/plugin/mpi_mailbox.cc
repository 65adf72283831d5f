#include "comm/mpi/plugin/mpi_mailbox.h"

#include <climits>
#include <cstring>

#include "base/check.h"

namespace plait::comm::mpi {
namespace {

constexpr int kPoison = 0xA5;

// Gives a request back; one that is still active goes when the library is done with it.
void abandon(MPI_Request& request, bool cancel) {
  if (request == MPI_REQUEST_NULL) return;
  if (cancel) MPI_Cancel(&request);
  MPI_Request_free(&request);
}

}  // namespace

MpiMailbox::MpiMailbox(std::shared_ptr<MpiGroup> group, const MailboxDesc& desc)
    : MailboxBase(*group, desc),
      group_(std::move(group)),
      session_(Session::duplicate(group_->session().get())) {
  PLAIT_CHECK(stride() <= INT_MAX, "make_mailbox: MPI sends at most ", INT_MAX,
              " bytes at once, not ", stride());
  const std::size_t channels = static_cast<std::size_t>(group_->world()) * desc.slots;
  staging_ = base::Region::allocate(channels * 4 * stride());
  outgoing_.resize(channels);
  incoming_.resize(channels);
  for (int peer = 0; peer < group_->world(); ++peer) {
    for (int slot = 0; slot < desc.slots; ++slot) {
      prepare(peer, slot, 0);
      prepare(peer, slot, 1);
    }
  }
}

std::size_t MpiMailbox::stride() const {
  return sizeof(Header) + (desc().slot_bytes + 63) / 64 * 64;
}

void MpiMailbox::prepare(int peer, int slot, int epoch) {
  const std::size_t channel = static_cast<std::size_t>(peer) * desc().slots + slot;
  std::byte* base = staging_.data() + (channel * 2 + epoch) * 2 * stride();
  Staged& out = outgoing(peer, slot).staged[epoch];
  Staged& in = incoming(peer, slot).staged[epoch];
  out.header = reinterpret_cast<Header*>(base);
  in.header = reinterpret_cast<Header*>(base + stride());
  const int bytes = static_cast<int>(sizeof(Header) + desc().slot_bytes);
  {
    const auto held = hold_mpi();
    check_mpi(MPI_Ssend_init(out.header, bytes, MPI_BYTE, peer, slot, session_.get(), &out.whole),
              "MPI_Ssend_init");
    check_mpi(MPI_Recv_init(in.header, bytes, MPI_BYTE, peer, slot, session_.get(), &in.whole),
              "MPI_Recv_init");
  }
  // Chunk 1 lies in epoch 1: its receive must be the first to be matched.
  if (epoch == 1) {
    receive_into(incoming(peer, slot).staged[1]);
    receive_into(incoming(peer, slot).staged[0]);
  }
}

MpiMailbox::~MpiMailbox() {
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended != 0) return;
  finish_sends();
  const auto held = hold_mpi();
  for (Channel& channel : outgoing_) {
    for (Staged& staged : channel.staged) {
      abandon(staged.part, false);
      abandon(staged.whole, false);
    }
  }
  for (Channel& channel : incoming_) {
    for (Staged& staged : channel.staged) abandon(staged.whole, !staged.complete);
  }
}

// What was posted is brought to an end before this rank says that it leaves: MPI moves a send only
// while its sender calls MPI. Peers have a receive ready for every chunk, so this takes no longer
// than the peers are away from MPI; it ends early where they are gone.
void MpiMailbox::finish_sends() noexcept try {
  const Nanoseconds deadline = base::now() + group_->policy().timeout;
  for (int peer = 0; peer < group_->world(); ++peer) {
    for (int slot = 0; slot < desc().slots; ++slot) {
      for (Staged& staged : outgoing(peer, slot).staged) {
        while (!test(staged) && !group_->failed() && !group_->has_left(peer) &&
               base::now() < deadline) {
          group_->listen();
        }
      }
    }
  }
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): destructors never throw
}

void MpiMailbox::receive_into(Staged& staged) {
  const auto held = hold_mpi();
  staged.complete = false;
  check_mpi(MPI_Start(&staged.whole), "MPI_Start");
}

bool MpiMailbox::test(Staged& staged) {
  if (staged.complete) return true;
  const auto held = hold_mpi();
  MPI_Request& request = staged.part != MPI_REQUEST_NULL ? staged.part : staged.whole;
  int done = 0;
  check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  staged.complete = done != 0;
  return staged.complete;
}

bool MpiMailbox::vacant(int peer, int slot) {
  check_channel("vacant", peer, slot);
  return test(outgoing(peer, slot).next());
}

std::byte* MpiMailbox::outbox(int peer, int slot) {
  if (!vacant(peer, slot)) wait_vacant(peer, slot);
  return payload(outgoing(peer, slot).next());
}

void MpiMailbox::post(int peer, int slot, const Tag& tag, std::size_t bytes) {
  check_channel("post", peer, slot);
  check_bytes(slot, bytes);
  if (!vacant(peer, slot)) wait_vacant(peer, slot);
  Channel& channel = outgoing(peer, slot);
  Staged& staged = channel.next();
  *staged.header = {.bytes = bytes, .tag = tag};
  staged.complete = false;
  ++channel.count;
  const auto held = hold_mpi();
  if (bytes == desc().slot_bytes) {
    check_mpi(MPI_Start(&staged.whole), "MPI_Start");
  } else {
    check_mpi(MPI_Issend(staged.header, static_cast<int>(sizeof(Header) + bytes), MPI_BYTE, peer,
                         slot, session_.get(), &staged.part),
              "MPI_Issend");
  }
}

bool MpiMailbox::arrived(int source, int slot, const Tag& tag) {
  check_channel("arrived", source, slot);
  Staged& staged = incoming(source, slot).next();
  if (!test(staged)) return false;
  if (staged.header->tag != tag) [[unlikely]]
    refuse_tag(source, staged.header->tag, tag);
  return true;
}

const std::byte* MpiMailbox::inbox(int source, int slot) {
  check_channel("inbox", source, slot);
  return payload(incoming(source, slot).next());
}

std::size_t MpiMailbox::inbox_bytes(int source, int slot) {
  check_channel("inbox_bytes", source, slot);
  return incoming(source, slot).next().header->bytes;
}

void MpiMailbox::release(int source, int slot) {
  check_channel("release", source, slot);
  Channel& channel = incoming(source, slot);
  Staged& staged = channel.next();
  PLAIT_CHECK(staged.complete, "release: the chunk in slot ", slot, " from rank ", source,
              " has not arrived");
  if (desc().poison) std::memset(payload(staged), kPoison, desc().slot_bytes);
  ++channel.count;
  receive_into(staged);
}

void MpiMailbox::progress() {
  group_->listen();
  MailboxBase::progress();
}

}  // namespace plait::comm::mpi
