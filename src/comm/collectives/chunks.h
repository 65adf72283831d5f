// Cutting what one rank sends another into chunks, and sending and receiving them in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/mailbox.h"
#include "comm/virtual_clock.h"
#include "plait/collectives.h"

namespace plait::comm {

// A chunk is as large as hides what it costs to hand one over (0.2 µs where memory is shared), and
// small enough that a rank sums one while the next is on its way.
inline constexpr std::size_t kChunkBytes = 32 * 1024;
inline constexpr std::size_t kLeastChunkBytes = 4 * 1024;

// Chunks of a stream go through its slots in turn, and go on where the call before left off: a slot
// that is written again has then left the reader's innermost cache, from which it is dearest to
// take back. (64 KiB each way in 16 KiB chunks: 6.5 µs through 16 buffers, 10 µs through 2.)
inline constexpr std::uint32_t kSlotsPerLane = 8;

// What a rank has room for, from all others together, unless they are so many that it would not be
// a chunk from each.
inline constexpr std::size_t kReceivedBytes = std::size_t{16} << 20;

// A stream of at least so many bytes does not stay in a core's cache: its chunks are written past
// the cache and evict nothing.
inline constexpr std::size_t kLargeStreamBytes = std::size_t{1} << 19;

// On modelled ranks, shorter streams have real contents: ranks exchange what they need to know.
inline constexpr std::size_t kLeastPlayedBytes = std::size_t{1} << 12;

// Streams of two kinds can be under way between two ranks: a call's own chunks, and sums that come
// back while parts still go out.
enum class Way { parts, sums };

// How large chunks are and through how many slots each lane's go; the same on all ranks of a world.
struct Room {
  std::size_t chunk_bytes = kChunkBytes;
  std::uint32_t per_lane = kSlotsPerLane;  // a power of two

  MailboxDesc mailbox() const {
    return {.slots = static_cast<int>(2 * per_lane), .slot_bytes = chunk_bytes};
  }
};

// The room of a world: full up to 16 ranks; beyond, chunks are smaller, and then slots fewer.
Room room_for(int world);

// Elements [0, count) in pieces of a chunk each. Even nothing is one chunk: ranks that disagree
// about whether there is something would not notice otherwise.
class Pieces {
 public:
  Pieces(std::size_t count, Dtype dtype, const Room& room) : Pieces(count, dtype, room, dtype) {}

  // Cut as elements of `widest` would be, no narrower than `dtype`: the same elements are then the
  // same chunk in both dtypes.
  Pieces(std::size_t count, Dtype dtype, const Room& room, Dtype widest)
      : count_(count),
        size_(size_of(dtype)),
        per_chunk_(chunk_bytes(count * size_of(widest), room.chunk_bytes) / size_of(widest)) {}

  std::uint32_t chunks() const {
    return count_ == 0 ? 1 : static_cast<std::uint32_t>((count_ + per_chunk() - 1) / per_chunk());
  }
  std::size_t offset(std::uint32_t chunk) const { return chunk * per_chunk(); }  // in elements
  std::size_t count(std::uint32_t chunk) const {
    const std::size_t left = count_ - offset(chunk);
    return left < per_chunk() ? left : per_chunk();
  }
  std::size_t offset_bytes(std::uint32_t chunk) const { return offset(chunk) * size_; }
  std::size_t bytes(std::uint32_t chunk) const { return count(chunk) * size_; }
  bool large() const { return count_ * size_ >= kLargeStreamBytes; }
  bool playable() const { return count_ * size_ >= kLeastPlayedBytes; }

 private:
  // Two chunks at least, where they are not too small: the first is summed while the second comes.
  static std::size_t chunk_bytes(std::size_t bytes, std::size_t most) {
    const std::size_t half = (bytes / 2 + kLeastChunkBytes - 1) / kLeastChunkBytes;
    return std::clamp(half * kLeastChunkBytes, kLeastChunkBytes, most);
  }
  std::size_t per_chunk() const { return per_chunk_; }

  std::size_t count_;
  std::size_t size_;
  std::size_t per_chunk_;
};

// Whether work with a chunk is done in name only: not of the smallest streams, because what ranks
// tell one another in those they are to hear.
bool is_played(Mailbox::State& mailbox, const Pieces& pieces, const Chore& chore);

// How many chunks went each way between this rank and a peer, over all calls.
struct Cursor {
  std::uint32_t sent[2] = {};
  std::uint32_t received[2] = {};
};

// What the streams of a communicator go through.
struct Channels {
  Mailbox::State& mailbox;
  std::vector<Cursor>& cursors;  // by peer
  std::uint64_t& moves;          // chunks sent and received in all
  Room room;
};

// One end of a stream of chunks between this rank and a peer.
class Stream {
 public:
  Stream(const Channels& channels, int peer, const Pieces& pieces, Way way)
      : mailbox_(&channels.mailbox),
        moves_(&channels.moves),
        peer_(peer),
        slots_(channels.room.per_lane),
        first_slot_(way == Way::parts ? 0 : slots_),
        pieces_(pieces),
        chunks_(pieces.chunks()) {}

  bool done() const { return next_ == chunks_; }
  std::uint32_t next() const { return next_; }
  int peer() const { return peer_; }
  const Pieces& pieces() const { return pieces_; }

 protected:
  int slot() const { return slot_before(0); }
  // The slot of the chunk so many before the next; fewer than slots_.
  int slot_before(std::uint32_t chunks) const {
    return static_cast<int>(first_slot_ + ((*position_ - chunks) & (slots_ - 1)));
  }
  // Copies what came for chunk `chunk` to its place in `out`.
  void copy_in(std::byte* out, const std::byte* data, std::uint32_t chunk) const;
  void step() {
    ++next_;
    ++*position_;
    ++*moves_;
  }
  Tag numbered(Tag tag) const {
    tag.chunk = next_;
    return tag;
  }

  Mailbox::State* mailbox_;
  std::uint64_t* moves_;
  int peer_;
  std::uint32_t slots_;
  std::uint32_t first_slot_;
  Pieces pieces_;
  std::uint32_t chunks_;
  std::uint32_t next_ = 0;
  std::uint32_t* position_ = nullptr;  // in the channel's whole history
};

class Sender : public Stream {
 public:
  Sender(const Channels& channels, int peer, const void* data, const Pieces& pieces,
         Way way = Way::parts)
      : Stream(channels, peer, pieces, way), data_(static_cast<const std::byte*>(data)) {
    position_ = &channels.cursors[peer].sent[static_cast<int>(way)];
  }

  // Sends the next chunk where there is one and room for it.
  bool send_next(const Tag& tag);

  Awaited awaited(const Tag& tag) const {
    return {.peer = peer_, .tag = numbered(tag), .room = true};
  }

 private:
  const std::byte* data_;
};

// Sends chunks and gets each one back as what the peer made of it, where the mailbox takes answers.
class Asker : public Sender {
 public:
  using Sender::Sender;

  // One chunk a slot: the answer is read before the slot is written again.
  bool send_next(const Tag& tag) { return next() - answered_ < slots_ && Sender::send_next(tag); }

  // Copies the next answer to its place in `out`, where it is here.
  bool receive_next(std::byte* out);

  bool done() const { return answered_ == chunks_; }
  Awaited awaited(const Tag& tag) const;

 private:
  std::uint32_t answered_ = 0;
};

class Receiver : public Stream {
 public:
  Receiver(const Channels& channels, int peer, const Pieces& pieces, Way way = Way::parts)
      : Stream(channels, peer, pieces, way) {
    position_ = &channels.cursors[peer].received[static_cast<int>(way)];
  }

  // Whether the next chunk is here; then data(), until take() gives it back.
  bool arrived(const Tag& tag) const {
    return !done() && mailbox_->arrived(peer_, slot(), numbered(tag));
  }
  // The data of the chunk that is here, which must be as large as this rank has cut it.
  const std::byte* data(const Tag& tag) const {
    mailbox_->check_size(peer_, slot(), tag, pieces_.bytes(next_));
    return mailbox_->inbox(peer_, slot());
  }
  // Where the sender, an Asker, reads the answer after take().
  std::byte* answer_box() const { return mailbox_->answer_box(peer_, slot()); }
  void take() {
    mailbox_->release(peer_, slot());
    step();
  }

  // Copies the next chunk to its place in `out`, where it is here.
  bool receive_next(const Tag& tag, std::byte* out);

  Awaited awaited(const Tag& tag) const { return {.peer = peer_, .tag = numbered(tag)}; }
};

}  // namespace plait::comm
