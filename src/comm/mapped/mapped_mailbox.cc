#include "comm/mapped/mapped_mailbox.h"

#include <cstring>

#include "base/check.h"
#include "base/round_up.h"

namespace plait::comm {
namespace {

constexpr std::byte kPoison{0xA5};

std::size_t padded(std::size_t bytes) { return base::round_up(bytes, kLine); }

struct Areas {
  std::size_t channels;
  std::size_t headers;  // where they begin
  std::size_t payloads;
  std::size_t end;
};

Areas areas_of(const MailboxDesc& desc, int world) {
  const std::size_t channels = static_cast<std::size_t>(desc.slots) * world;
  Areas areas = {.channels = channels, .headers = channels * kPair, .payloads = 0, .end = 0};
  areas.payloads = areas.headers + channels * 2 * kPair;
  areas.end = areas.payloads + channels * 2 * padded(desc.slot_bytes);
  return areas;
}

}  // namespace

MappedMailbox::MappedMailbox(std::shared_ptr<MappedGroup> group, const MailboxDesc& desc,
                             Rendezvous& rendezvous, const Rendezvous::Watch& watch)
    : MailboxBase(*group, desc), group_(std::move(group)) {
  const int world = group_->world();
  const int rank = group_->rank();
  regions_ = rendezvous.share(areas_of(desc, world).end, describe(desc), watch);
  outgoing_.resize(static_cast<std::size_t>(world) * desc.slots);
  incoming_.resize(outgoing_.size());
  for (int peer = 0; peer < world; ++peer) {
    for (int slot = 0; slot < desc.slots; ++slot) {
      for (int epoch = 0; epoch < 2; ++epoch) {
        outgoing(peer, slot).chunks[epoch] = chunk_in(peer, rank, slot, epoch);
        incoming(peer, slot).chunks[epoch] = chunk_in(rank, peer, slot, epoch);
      }
      outgoing(peer, slot).released = released_in(rank, peer, slot);
      incoming(peer, slot).released = released_in(peer, rank, slot);
    }
  }
}

MappedMailbox::Released* MappedMailbox::released_in(int owner, int peer, int slot) const {
  const std::size_t channel = static_cast<std::size_t>(peer) * desc().slots + slot;
  return reinterpret_cast<Released*>(regions_[owner].data() + channel * kPair);
}

MappedMailbox::Chunk MappedMailbox::chunk_in(int owner, int source, int slot, int epoch) const {
  const Areas areas = areas_of(desc(), static_cast<int>(regions_.size()));
  const std::size_t index = (static_cast<std::size_t>(source) * desc().slots + slot) * 2 + epoch;
  std::byte* region = regions_[owner].data();
  return {.header = reinterpret_cast<Header*>(region + areas.headers + index * kPair),
          .payload = region + areas.payloads + index * padded(desc().slot_bytes)};
}

// Memory ordering: what the peer read from chunk n - 2 it read before its release() (release there,
// acquire here), so that writing chunk n over it is safe.
bool MappedMailbox::vacant(int peer, int slot) {
  check_channel("vacant", peer, slot);
  Outgoing& out = outgoing(peer, slot);
  if (out.posted < out.known_released + 2) return true;
  out.known_released =
      out.released->number.load(std::memory_order_acquire);  // pairs with release()
  return out.posted < out.known_released + 2 || no_room(peer, slot);
}

std::byte* MappedMailbox::outbox(int peer, int slot) {
  check_channel("outbox", peer, slot);
  if (!vacant(peer, slot)) wait_vacant(peer, slot);
  Outgoing& out = outgoing(peer, slot);
  return out.chunks[(out.posted + 1) % 2].payload;
}

// Memory ordering: payload, tag and size are written before the number (release), which arrived()
// reads (acquire): a rank that sees the number sees the chunk.
void MappedMailbox::post(int peer, int slot, const Tag& tag, std::size_t bytes) {
  check_channel("post", peer, slot);
  check_bytes(slot, bytes);
  if (!vacant(peer, slot)) wait_vacant(peer, slot);
  Outgoing& out = outgoing(peer, slot);
  const std::uint64_t number = ++out.posted;
  Header& header = *out.chunks[number % 2].header;
  header.bytes = bytes;
  header.tag = tag;
  header.number.store(number, std::memory_order_release);  // pairs with arrived()
  group_->ring(peer);
  note_move();
}

bool MappedMailbox::arrived(int source, int slot, const Tag& tag) {
  check_channel("arrived", source, slot);
  const Incoming& in = incoming(source, slot);
  const std::uint64_t next = in.taken + 1;
  const Header& header = *in.chunks[next % 2].header;
  if (header.number.load(std::memory_order_acquire) != next) {  // pairs with post()
    return not_yet(source, slot, tag);
  }
  if (header.tag != tag) [[unlikely]]
    refuse_tag(source, header.tag, tag);
  return true;
}

// Relaxed: this rank has seen the number already, in arrived().
bool MappedMailbox::has_come(const Chunk& chunk, int source, int slot) {
  return chunk.header->number.load(std::memory_order_relaxed) == incoming(source, slot).taken + 1;
}

const std::byte* MappedMailbox::inbox(int source, int slot) {
  check_channel("inbox", source, slot);
  const Chunk& chunk = next_chunk(source, slot);
  check_arrived("inbox", has_come(chunk, source, slot), source, slot);
  return chunk.payload;
}

std::byte* MappedMailbox::answer_box(int source, int slot) {
  check_channel("answer_box", source, slot);
  const Incoming& in = incoming(source, slot);
  return in.chunks[(in.taken + 1) % 2].payload;
}

// Memory ordering: the answer is written before release(), whose number is read here (acquire):
// a rank that sees the number sees the answer.
const std::byte* MappedMailbox::answer(int peer, int slot) {
  check_channel("answer", peer, slot);
  Outgoing& out = outgoing(peer, slot);
  if (out.known_released < out.posted) {
    out.known_released =
        out.released->number.load(std::memory_order_acquire);  // pairs with release()
  }
  return out.known_released < out.posted ? nullptr : out.chunks[out.posted % 2].payload;
}

std::size_t MappedMailbox::inbox_bytes(int source, int slot) {
  check_channel("inbox_bytes", source, slot);
  const Chunk& chunk = next_chunk(source, slot);
  check_arrived("inbox_bytes", has_come(chunk, source, slot), source, slot);
  return chunk.header->bytes;
}

void MappedMailbox::release(int source, int slot) {
  check_channel("release", source, slot);
  Incoming& in = incoming(source, slot);
  const std::uint64_t number = in.taken + 1;
  const Chunk& chunk = in.chunks[number % 2];
  check_arrived("release", has_come(chunk, source, slot), source, slot);
  if (desc().poison) std::memset(chunk.payload, static_cast<int>(kPoison), desc().slot_bytes);
  in.taken = number;
  in.released->number.store(number, std::memory_order_release);  // pairs with vacant()
  group_->ring(source);
  note_move();
}

}  // namespace plait::comm
