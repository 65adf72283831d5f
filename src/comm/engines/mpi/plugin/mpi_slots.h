// The slots of a mailbox between ranks whose memory can't be mapped: each chunk is staged on both
// sides, and travels by a persistent request.
//
// The sends are synchronous ones: they are complete when the receiver has taken up the receive,
// that is, when it has room again. So a completed send is all that outbox() needs to know, and
// nothing has to be sent back.
#pragma once

#include <memory>

#include "comm/core/slot_transport.h"
#include "comm/engines/mpi/plugin/channels.h"
#include "comm/engines/mpi/plugin/mpi_group.h"

namespace plait::comm::mpi {

class MpiSlots final : public SlotTransport {
 public:
  // `members` of the group, with the tags by which they receive this mailbox's chunks: `first_tags`
  // + slot.
  MpiSlots(std::shared_ptr<MpiGroup> group, const Members& members, const MailboxDesc& desc);
  ~MpiSlots() override;

  Vacancy outbox(int peer, int slot) override;
  bool post(int peer, int slot, const Tag& tag, std::size_t bytes) override;
  Arrival inbox(int source, int slot) override;
  bool release(int source, int slot) override;
  void move() override { group_->listen(); }
  void populate() override { channels_->populate(); }
  std::size_t held_bytes() const override { return channels_->bytes(); }

 private:
  void finish_sends() noexcept;
  void wait_until_all_is_taken();
  int first_that_has_not_taken_all();

  std::shared_ptr<MpiGroup> group_;
  std::unique_ptr<Channels> channels_;
};

}  // namespace plait::comm::mpi
