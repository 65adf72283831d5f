// A mailbox between ranks whose memory can't be mapped: each chunk is staged on both sides, and
// travels by a persistent request.
//
// The sends are synchronous ones: they are complete when the receiver has taken up the receive,
// that is, when it has room again. So a completed send is all that vacant() needs to know, and
// nothing has to be sent back.
#pragma once

#include <memory>

#include "comm/mailbox_base.h"
#include "comm/mpi/plugin/channels.h"
#include "comm/mpi/plugin/mpi_group.h"

namespace plait::comm::mpi {

class MpiMailbox final : public MailboxBase {
 public:
  // `members` of the group, with the tags by which they receive this mailbox's chunks: `first_tags`
  // + slot.
  MpiMailbox(std::shared_ptr<MpiGroup> group, const Members& members, const MailboxDesc& desc);
  ~MpiMailbox() override;

  bool vacant(int peer, int slot) override;
  std::byte* outbox(int peer, int slot) override;
  void post(int peer, int slot, const Tag& tag, std::size_t bytes) override;
  bool arrived(int source, int slot, const Tag& tag) override;
  const std::byte* inbox(int source, int slot) override;
  std::size_t inbox_bytes(int source, int slot) override;
  void release(int source, int slot) override;
  void check_next(int source, int slot, const Tag& tag) override;
  void help() override { group_->listen(); }
  std::size_t held_bytes() const override { return channels_->bytes(); }

 private:
  void finish_sends() noexcept;
  void wait_until_all_is_taken();
  int first_that_has_not_taken_all();

  std::shared_ptr<MpiGroup> group_;
  std::unique_ptr<Channels> channels_;
};

}  // namespace plait::comm::mpi
