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
