// Slots in memory that all ranks of the group have mapped (see mapped_channels.h).
#pragma once

#include <memory>

#include "comm/core/slot_transport.h"
#include "comm/mapped/mapped_channels.h"
#include "comm/mapped/mapped_group.h"

namespace plait::comm {

class MappedSlots final : public SlotTransport {
 public:
  // Collective.
  MappedSlots(std::shared_ptr<MappedGroup> group, const MailboxDesc& desc, Rendezvous& rendezvous,
              const Rendezvous::Watch& watch);

  Vacancy outbox(int peer, int slot) override;
  bool post(int peer, int slot, const Tag& tag, std::size_t bytes) override;
  Arrival inbox(int source, int slot) override;
  bool release(int source, int slot) override;
  void populate() override { channels_.populate(); }
  std::size_t held_bytes() const override { return channels_.held_bytes(); }
  bool takes_answers() const override { return true; }
  const std::byte* answer(int peer, int slot) override { return channels_.answer(peer, slot); }

 private:
  std::shared_ptr<MappedGroup> group_;
  MappedChannels channels_;
};

}  // namespace plait::comm
