// A modelled rank's end of a mailbox: chunks arrive when the modelled network would have brought
// them.
#pragma once

#include <memory>

#include "comm/core/slot_transport.h"
#include "simulation/scheduler.h"
#include "simulation/slots.h"

namespace plait::comm::modelled {

class ModelledSlots final : public SlotTransport {
 public:
  ModelledSlots(std::shared_ptr<Scheduler> scheduler, int rank, Slots& slots)
      : scheduler_(std::move(scheduler)), rank_(rank), slots_(slots) {}

  Vacancy outbox(int peer, int slot) override;
  bool post(int peer, int slot, const Tag& tag, std::size_t bytes) override;
  Arrival inbox(int source, int slot) override;
  bool release(int source, int slot) override;
  std::size_t held_bytes() const override;

 private:
  SimRank& me() { return scheduler_->rank(rank_); }
  Slots::Channel& outgoing(int peer, int slot) { return slots_.channel(rank_, peer, slot); }
  Slots::Channel& incoming(int source, int slot) { return slots_.channel(source, rank_, slot); }
  bool has_room(int peer, int slot) { return slots_.room_at(rank_, peer, slot) <= me().now(); }
  bool has_come(int source, int slot) { return slots_.due(source, rank_, slot) <= me().now(); }

  std::shared_ptr<Scheduler> scheduler_;
  int rank_;
  Slots& slots_;
  Tag came_;  // the tag that the last inbox() has shown
};

}  // namespace plait::comm::modelled
