#include "comm/mapped/mapped_channels.h"

#include <utility>

#include "base/round_up.h"

namespace plait::comm {
namespace {

std::size_t padded(std::size_t bytes) { return base::round_up(bytes, kLine); }

struct Areas {
  std::size_t headers;  // offsets of the areas
  std::size_t payloads;
  std::size_t end;
};

Areas areas_of(const MailboxDesc& desc, int ranks) {
  const std::size_t channels = static_cast<std::size_t>(desc.slots) * ranks;
  Areas areas = {.headers = channels * kPair, .payloads = 0, .end = 0};
  areas.payloads = areas.headers + channels * 2 * kPair;
  areas.end = areas.payloads + channels * 2 * padded(desc.slot_bytes);
  return areas;
}

}  // namespace

std::size_t MappedChannels::bytes_for(const MailboxDesc& desc, int ranks) {
  return areas_of(desc, ranks).end;
}

MappedChannels::MappedChannels(const MailboxDesc& desc, int me, std::vector<base::Region> regions)
    : desc_(desc), me_(me), regions_(std::move(regions)) {
  const int ranks = static_cast<int>(regions_.size());
  outgoing_.resize(static_cast<std::size_t>(ranks) * desc.slots);
  incoming_.resize(outgoing_.size());
  for (int peer = 0; peer < ranks; ++peer) {
    for (int slot = 0; slot < desc.slots; ++slot) {
      Outgoing& out = outgoing(peer, slot);
      Incoming& in = incoming_[peer * desc.slots + slot];
      for (int epoch = 0; epoch < 2; ++epoch) {
        out.chunks[epoch] = chunk_in(peer, me, slot, epoch);
        in.chunks[epoch] = chunk_in(me, peer, slot, epoch);
      }
      out.released = released_in(me, peer, slot);
      in.released = released_in(peer, me, slot);
    }
  }
}

// With all of each region, the pages that many ranks map would grow with the third power of their
// number. What a rank receives comes first, so that it is near its processor.
void MappedChannels::populate() const {
  const int ranks = static_cast<int>(regions_.size());
  const Areas areas = areas_of(desc_, ranks);
  const std::size_t channels = desc_.slots;  // of one peer
  const std::size_t payload = channels * 2 * padded(desc_.slot_bytes);
  regions_[me_].populate(0, areas.payloads);
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != me_) regions_[me_].populate(areas.payloads + peer * payload, payload);
  }
  const std::size_t mine = me_ * channels;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == me_) continue;  // few ranks send to themselves
    regions_[peer].populate(mine * kPair, channels * kPair);
    regions_[peer].populate(areas.headers + mine * 2 * kPair, channels * 2 * kPair);
    regions_[peer].populate(areas.payloads + me_ * payload, payload);
  }
}

MappedChannels::Released* MappedChannels::released_in(int owner, int peer, int slot) const {
  const std::size_t channel = static_cast<std::size_t>(peer) * desc_.slots + slot;
  return reinterpret_cast<Released*>(regions_[owner].data() + channel * kPair);
}

MappedChannels::Chunk MappedChannels::chunk_in(int owner, int source, int slot, int epoch) const {
  const Areas areas = areas_of(desc_, static_cast<int>(regions_.size()));
  const std::size_t index = (static_cast<std::size_t>(source) * desc_.slots + slot) * 2 + epoch;
  std::byte* region = regions_[owner].data();
  return {.header = reinterpret_cast<Header*>(region + areas.headers + index * kPair),
          .payload = region + areas.payloads + index * padded(desc_.slot_bytes)};
}

const std::byte* MappedChannels::answer(int peer, int slot) {
  Outgoing& out = outgoing(peer, slot);
  if (out.known_released < out.posted) {
    out.known_released =
        out.released->number.load(std::memory_order_acquire);  // pairs with release()
  }
  return out.known_released < out.posted ? nullptr : out.chunks[out.posted % 2].payload;
}

}  // namespace plait::comm
