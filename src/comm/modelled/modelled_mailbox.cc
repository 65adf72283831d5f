#include "comm/modelled/modelled_mailbox.h"

#include <cstring>

namespace plait::comm::modelled {
namespace {

// The simulated time between two polls of a rank: a real poll costs about as much.
constexpr Nanoseconds kPoll = 100;

constexpr int kPoison = 0xA5;

}  // namespace

// A place is free from when the reader of the chunk before has given it back.
bool ModelledMailbox::vacant(int peer, int slot) {
  check_channel("vacant", peer, slot);
  return slots_.room_at(rank(), peer, slot) <= seat().now();
}

std::byte* ModelledMailbox::outbox(int peer, int slot) {
  check_channel("outbox", peer, slot);
  if (!vacant(peer, slot)) wait_vacant(peer, slot);
  return slots_.payload(rank(), peer, slot, outgoing(peer, slot).posted + 1);
}

void ModelledMailbox::post(int peer, int slot, const Tag& tag, std::size_t bytes) {
  check_channel("post", peer, slot);
  check_bytes(slot, bytes);
  if (!vacant(peer, slot)) wait_vacant(peer, slot);
  Slots::Channel& out = outgoing(peer, slot);
  Slots::Place& place = out.place(++out.posted);
  const Nanoseconds from = seat().hands_over_at();
  place.due = from;  // a rank's chunk for itself travels no wire
  if (peer != rank()) {
    const Interval flight = stage_->wires().book(rank(), peer, bytes, from);
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
  slots_.note_change(rank(), peer, slot);
  stage_->seat(peer).notify(place.due);
}

bool ModelledMailbox::has_come(int source, int slot) {
  return slots_.due(source, rank(), slot) <= seat().now();
}

bool ModelledMailbox::arrived(int source, int slot, const Tag& tag) {
  check_channel("arrived", source, slot);
  if (!has_come(source, slot)) return false;
  Slots::Channel& in = incoming(source, slot);
  const Tag came = slots_.tag_of(in.place(in.released + 1));
  if (came != tag) [[unlikely]]
    refuse_tag(source, came, tag);
  return true;
}

const std::byte* ModelledMailbox::inbox(int source, int slot) {
  check_channel("inbox", source, slot);
  Slots::Channel& in = incoming(source, slot);
  check_arrived("inbox", has_come(source, slot), source, slot);
  return slots_.payload(source, rank(), slot, in.released + 1);
}

std::size_t ModelledMailbox::inbox_bytes(int source, int slot) {
  check_channel("inbox_bytes", source, slot);
  Slots::Channel& in = incoming(source, slot);
  check_arrived("inbox_bytes", has_come(source, slot), source, slot);
  return in.place(in.released + 1).bytes;
}

void ModelledMailbox::release(int source, int slot) {
  check_channel("release", source, slot);
  Slots::Channel& in = incoming(source, slot);
  check_arrived("release", has_come(source, slot), source, slot);
  if (desc().poison && !slots_.hollow) {
    std::memset(slots_.payload(source, rank(), slot, in.released + 1), kPoison, desc().slot_bytes);
  }
  ++in.released;
  const Nanoseconds at = seat().hands_over_at();
  in.place(in.released).room_at = at;
  slots_.note_change(source, rank(), slot);
  stage_->seat(source).notify(at);
}

// Polling takes simulated time: otherwise no other rank would ever get its turn.
void ModelledMailbox::progress() {
  group().raise_if_failed();
  seat().spend(kPoll);
}

std::size_t ModelledMailbox::held_bytes() const {
  if (slots_.hollow) return 0;
  return 2 * slots_.world * static_cast<std::size_t>(desc().slots) * desc().slot_bytes;
}

}  // namespace plait::comm::modelled
