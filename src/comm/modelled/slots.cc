#include "comm/modelled/slots.h"

#include <algorithm>

namespace plait::comm::modelled {

std::byte* Slots::payload(int source, int destination, int slot, std::uint32_t number) {
  Buffer& buffer = memory[hollow ? 0 : static_cast<std::size_t>(source)];
  const std::size_t places = hollow ? 1 : 2 * world * static_cast<std::size_t>(desc.slots);
  if (buffer.bytes() == 0) buffer = Buffer(std::max(places * padded(), std::size_t{64}));
  if (hollow) return buffer.data();
  return buffer.data() + (2 * index(destination, slot) + number % 2) * padded();
}

base::Nanoseconds& Slots::time_in(std::vector<Times>& of_rank, int rank, int peer, int slot,
                                  base::Nanoseconds initial) {
  Times& own = of_rank[static_cast<std::size_t>(rank)];
  if (own.empty()) own.resize(world * static_cast<std::size_t>(desc.slots), initial);
  return own[beside(peer, slot)];
}

void Slots::note_change(int source, int destination, int slot) {
  Channel& one = channel(source, destination, slot);
  const bool holds = one.posted > one.released;
  const bool has_room = one.posted < one.released + 2;
  time_in(due_, destination, source, slot, kNever) =
      holds ? one.place(one.released + 1).due : kNever;
  time_in(room_at_, source, destination, slot, 0) =
      has_room ? one.place(one.posted + 1).room_at : kNever;
}

// Nearly always the last.
std::uint32_t Slots::number_of(Tag tag) {
  tag.chunk = 0;
  const auto found = std::find(calls.rbegin(), calls.rend(), tag);
  if (found != calls.rend()) return static_cast<std::uint32_t>(calls.rend() - found - 1);
  calls.push_back(tag);
  return static_cast<std::uint32_t>(calls.size() - 1);
}

Tag Slots::tag_of(const Place& place) const {
  Tag tag = calls[place.call];
  tag.chunk = place.chunk;
  return tag;
}

}  // namespace plait::comm::modelled
