#include "simulation/slots.h"

#include <algorithm>

namespace plait::comm::modelled {

std::byte* Slots::payload(int source, int destination, int slot, std::uint32_t number) {
  Buffer& buffer = memory_[no_storage ? 0 : static_cast<std::size_t>(source)];
  const std::size_t entries = no_storage ? 1 : 2 * lanes();
  if (buffer.bytes() == 0) buffer = Buffer(std::max(entries * padded(), std::size_t{64}));
  if (no_storage) return buffer.data();
  return buffer.data() + (2 * lane(destination, slot) + number % 2) * padded();
}

void Slots::note_change(int source, int destination, int slot) {
  Channel& one = channel(source, destination, slot);
  const bool holds = one.posted > one.released;
  const bool has_room = one.posted < one.released + 2;
  Times& due = due_[lane(destination, slot)];
  if (due.empty()) due.resize(world, kNever);
  due[static_cast<std::size_t>(source)] = holds ? one.entry(one.released + 1).due : kNever;
  Times& room_at = room_at_[lane(source, slot)];
  if (room_at.empty()) room_at.resize(world, 0);
  room_at[static_cast<std::size_t>(destination)] =
      has_room ? one.entry(one.posted + 1).room_at : kNever;
}

// Nearly always the last.
std::uint32_t Slots::number_of(Tag tag) {
  tag.chunk = 0;
  const auto found = std::find(calls_.rbegin(), calls_.rend(), tag);
  if (found != calls_.rend()) return static_cast<std::uint32_t>(calls_.rend() - found - 1);
  calls_.push_back(tag);
  return static_cast<std::uint32_t>(calls_.size() - 1);
}

Tag Slots::tag_of(const Entry& entry) const {
  Tag tag = calls_[entry.call];
  tag.chunk = entry.chunk;
  return tag;
}

}  // namespace plait::comm::modelled
