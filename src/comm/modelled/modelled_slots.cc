#include "comm/modelled/modelled_slots.h"

namespace plait::comm::modelled {

// A place is free from when the reader of the chunk before has given it back.
Vacancy ModelledSlots::outbox(int peer, int slot) {
  if (!has_room(peer, slot)) return {};
  return {.place = slots_.payload(rank_, peer, slot, outgoing(peer, slot).posted + 1)};
}

bool ModelledSlots::post(int peer, int slot, const Tag& tag, std::size_t bytes) {
  if (!has_room(peer, slot)) return false;
  Slots::Channel& out = outgoing(peer, slot);
  Slots::Place& place = out.place(++out.posted);
  const Nanoseconds from = seat().hands_over_at();
  place.due = from;  // a rank's chunk for itself travels no wire
  if (peer != rank_) {
    const Interval flight = stage_->wires().book(rank_, peer, bytes, from);
    seat().occupy(flight);
    stage_->seat(peer).occupy(flight);
    seat().record_flight(flight, {.bytes = static_cast<std::int64_t>(bytes),
                                  .peer = peer,
                                  .chunk = static_cast<std::int32_t>(tag.chunk & INT32_MAX)});
    place.due = flight.end;
  }
  place.bytes = bytes;
  place.chunk = tag.chunk;
  place.call = slots_.number_of(tag);
  slots_.note_change(rank_, peer, slot);
  stage_->seat(peer).notify(place.due);
  return true;
}

Arrival ModelledSlots::inbox(int source, int slot) {
  if (!has_come(source, slot)) return {};
  Slots::Channel& in = incoming(source, slot);
  const Slots::Place& place = in.place(in.released + 1);
  came_ = slots_.tag_of(place);
  return {.data = slots_.payload(source, rank_, slot, in.released + 1),
          .bytes = place.bytes,
          .tag = &came_};
}

bool ModelledSlots::release(int source, int slot) {
  if (!has_come(source, slot)) return false;
  Slots::Channel& in = incoming(source, slot);
  ++in.released;
  const Nanoseconds at = seat().hands_over_at();
  in.place(in.released).room_at = at;
  slots_.note_change(source, rank_, slot);
  stage_->seat(source).notify(at);
  return true;
}

std::size_t ModelledSlots::held_bytes() const {
  if (slots_.hollow) return 0;
  return 2 * slots_.world * static_cast<std::size_t>(slots_.desc.slots) * slots_.desc.slot_bytes;
}

}  // namespace plait::comm::modelled
