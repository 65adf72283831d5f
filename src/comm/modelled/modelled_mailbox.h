// A modelled rank's end of a mailbox: chunks arrive when the modelled network would have brought
// them.
#pragma once

#include "comm/mailbox_base.h"
#include "comm/modelled/slots.h"
#include "comm/modelled/stage.h"

namespace plait::comm::modelled {

class ModelledMailbox final : public MailboxBase {
 public:
  ModelledMailbox(std::shared_ptr<World::Stage> stage, Group& group, Slots& slots)
      : MailboxBase(group, slots.desc), stage_(std::move(stage)), slots_(slots) {}

  bool vacant(int peer, int slot) override;
  std::byte* outbox(int peer, int slot) override;
  void post(int peer, int slot, const Tag& tag, std::size_t bytes) override;
  bool arrived(int source, int slot, const Tag& tag) override;
  const std::byte* inbox(int source, int slot) override;
  std::size_t inbox_bytes(int source, int slot) override;
  void release(int source, int slot) override;
  void progress() override;
  void help() override {}
  std::size_t held_bytes() const override;

 private:
  int rank() { return group().rank(); }
  Seat& seat() { return stage_->seat(rank()); }
  Slots::Channel& outgoing(int peer, int slot) { return slots_.channel(rank(), peer, slot); }
  Slots::Channel& incoming(int source, int slot) { return slots_.channel(source, rank(), slot); }
  bool has_come(int source, int slot);

  std::shared_ptr<World::Stage> stage_;
  Slots& slots_;
};

}  // namespace plait::comm::modelled
