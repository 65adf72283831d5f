#include "comm/collectives/chunks.h"

#include <cstring>

#include "tensor/copy.h"

namespace plait::comm {
namespace {

// memcpy with nothing to copy may have no address to copy from.
void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

bool is_played(Mailbox::State& mailbox, const Pieces& pieces, const Chore& chore) {
  VirtualClock* clock = mailbox.group().clock();
  return clock != nullptr && pieces.playable() && clock->plays(chore);
}

// world 2 → 8 slots of 32 KiB a lane; 64 → 8 of 8 KiB; 256 → 4 of 4 KiB
Room room_for(int world) {
  Room room;
  const auto received = [&] {
    return room.chunk_bytes * room.per_lane * 2 /*lanes*/ * 2 /*epochs*/ *
           static_cast<std::size_t>(world);
  };
  while (room.chunk_bytes > kLeastChunkBytes && received() > kReceivedBytes) room.chunk_bytes /= 2;
  while (room.per_lane > 1 && received() > kReceivedBytes) room.per_lane /= 2;
  return room;
}

void Stream::copy_in(std::byte* out, const std::byte* data, std::uint32_t chunk) const {
  const std::size_t bytes = pieces_.bytes(chunk);
  const auto size = static_cast<std::int64_t>(bytes);
  if (is_played(*mailbox_, pieces_, {.label = "take", .read = size, .written = size})) return;
  if (!pieces_.large()) {
    copy(bytes == 0 ? nullptr : out + pieces_.offset_bytes(chunk), data, bytes);
    return;
  }
  tensor::stream_copy(out + pieces_.offset_bytes(chunk), data, bytes);
  if (chunk + 1 == chunks_) tensor::stream_fence();
}

bool Sender::send_next(const Tag& tag) {
  if (done() || !mailbox_->vacant(peer_, slot())) return false;
  const std::size_t bytes = pieces_.bytes(next_);
  std::byte* const out = mailbox_->outbox(peer_, slot());
  const std::byte* const from = bytes == 0 ? nullptr : data_ + pieces_.offset_bytes(next_);
  const auto size = static_cast<std::int64_t>(bytes);
  const Chore chore = {.label = "copy", .read = size, .written = size, .to_peer = true};
  if (!is_played(*mailbox_, pieces_, chore)) {
    if (pieces_.large()) {
      tensor::copy_ahead(out, from, bytes);
    } else {
      copy(out, from, bytes);
    }
  }
  mailbox_->post(peer_, slot(), numbered(tag), bytes);
  step();
  return true;
}

bool Receiver::receive_next(const Tag& tag, std::byte* out) {
  if (!arrived(tag)) return false;
  copy_in(out, data(tag), next_);
  take();
  return true;
}

bool Asker::receive_next(std::byte* out) {
  if (answered_ == next()) return false;
  const std::byte* answer = mailbox_->answer(peer(), slot_before(next() - answered_));
  if (answer == nullptr) return false;
  copy_in(out, answer, answered_);
  ++answered_;
  ++*moves_;
  return true;
}

Awaited Asker::awaited(const Tag& tag) const {
  Tag asked = tag;
  asked.chunk = answered_;
  return {.peer = peer(), .tag = asked};
}

}  // namespace plait::comm
