// A mailbox between ranks whose memory can't be mapped: each chunk is staged on both sides, and
// travels by a persistent request.
//
// The sends are synchronous ones: they are complete when the receiver has taken up the receive,
// that is, when it has room again. So a completed send is all that vacant() needs to know, and
// nothing has to be sent back.
#pragma once

#include <memory>
#include <vector>

#include "base/region.h"
#include "comm/mailbox_base.h"
#include "comm/mpi/plugin/mpi_group.h"

namespace plait::comm::mpi {

class MpiMailbox final : public MailboxBase {
 public:
  MpiMailbox(std::shared_ptr<MpiGroup> group, const MailboxDesc& desc);
  ~MpiMailbox() override;

  bool vacant(int peer, int slot) override;
  std::byte* outbox(int peer, int slot) override;
  void post(int peer, int slot, const Tag& tag, std::size_t bytes) override;
  bool arrived(int source, int slot, const Tag& tag) override;
  const std::byte* inbox(int source, int slot) override;
  std::size_t inbox_bytes(int source, int slot) override;
  void release(int source, int slot) override;
  void progress() override;
  std::size_t held_bytes() const override { return staging_.bytes(); }

 private:
  struct alignas(64) Header {
    std::uint64_t bytes;
    Tag tag;
  };

  // One of the two chunks of a channel, on one side.
  struct Staged {
    Header* header = nullptr;
    MPI_Request whole = MPI_REQUEST_NULL;  // persistent: a full slot out, or any chunk in
    MPI_Request part = MPI_REQUEST_NULL;   // a shorter chunk out
    bool complete = true;                  // out: may be written; in: has arrived
  };
  struct Channel {
    Staged staged[2];
    std::uint64_t count = 0;  // posted, or taken
    Staged& next() { return staged[(count + 1) % 2]; }
  };

  static std::byte* payload(const Staged& staged) {
    return reinterpret_cast<std::byte*>(staged.header + 1);
  }
  Channel& outgoing(int peer, int slot) { return outgoing_[peer * desc().slots + slot]; }
  Channel& incoming(int source, int slot) { return incoming_[source * desc().slots + slot]; }
  std::size_t stride() const;
  void prepare(int peer, int slot, int epoch);
  void receive_into(Staged& staged);
  void finish_sends() noexcept;
  static bool test(Staged& staged);

  std::shared_ptr<MpiGroup> group_;
  Session session_;  // its own: another mailbox's chunks must not be taken for this one's
  base::Region staging_;
  std::vector<Channel> outgoing_;
  std::vector<Channel> incoming_;
};

}  // namespace plait::comm::mpi
