// A mailbox in memory that all ranks of the group have mapped (see mapped_channels.h).
#pragma once

#include <memory>

#include "comm/mailbox_base.h"
#include "comm/mapped/mapped_channels.h"
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
  std::size_t held_bytes() const override { return channels_.held_bytes(); }

 private:
  std::shared_ptr<MappedGroup> group_;
  MappedChannels channels_;
};

}  // namespace plait::comm
