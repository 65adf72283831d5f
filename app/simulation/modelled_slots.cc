#include "simulation/modelled_slots.h"

namespace plait::comm::modelled {

// An entry is free from the time at which its reader has released the chunk before.
Vacancy ModelledSlots::outbox(int peer, int slot) {
  if (!has_room(peer, slot)) return {};
  return {.place = slots_.payload(rank_, peer, slot, outgoing(peer, slot).posted + 1)};
}

bool ModelledSlots::post(int peer, int slot, const Tag& tag, std::size_t bytes) {
  if (!has_room(peer, slot)) return false;
  Slots::Channel& out = outgoing(peer, slot);
  Slots::Entry& entry = out.entry(++out.posted);
  const Nanoseconds from = me().hands_over_at();
  entry.due = from;  // a rank's chunk for itself travels no wire
  if (peer != rank_) {
    const TimeInterval flight = scheduler_->wires().book(rank_, peer, bytes, from);
    me().occupy(flight);
    scheduler_->rank(peer).occupy(flight);
    me().record_flight(flight, {.bytes = static_cast<std::int64_t>(bytes),
                                .peer = peer,
                                .chunk = static_cast<std::int32_t>(tag.chunk & INT32_MAX)});
    entry.due = flight.end;
  }
  entry.bytes = bytes;
  entry.chunk = tag.chunk;
  entry.call = slots_.number_of(tag);
  slots_.note_change(rank_, peer, slot);
  scheduler_->rank(peer).notify(entry.due);
  return true;
}

Arrival ModelledSlots::inbox(int source, int slot) {
  if (!has_come(source, slot)) return {};
  Slots::Channel& in = incoming(source, slot);
  const Slots::Entry& entry = in.entry(in.released + 1);
  came_ = slots_.tag_of(entry);
  return {.data = slots_.payload(source, rank_, slot, in.released + 1),
          .bytes = entry.bytes,
          .tag = &came_};
}

bool ModelledSlots::release(int source, int slot) {
  if (!has_come(source, slot)) return false;
  Slots::Channel& in = incoming(source, slot);
  ++in.released;
  const Nanoseconds at = me().hands_over_at();
  in.entry(in.released).room_at = at;
  slots_.note_change(source, rank_, slot);
  scheduler_->rank(source).notify(at);
  return true;
}

std::size_t ModelledSlots::held_bytes() const {
  if (slots_.no_storage) return 0;
  return 2 * slots_.world * static_cast<std::size_t>(slots_.desc.slots) * slots_.desc.slot_bytes;
}

}  // namespace plait::comm::modelled
