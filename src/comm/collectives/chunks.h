// Cutting what one rank sends another into chunks, and sending and receiving them in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/mailbox_base.h"
#include "plait/collectives.h"

namespace plait::comm {

// Two chunks of every slot in flight: 8 of 64 KiB keep a link busy and stay in a core's own cache.
inline constexpr int kSlots = 4;
inline constexpr std::size_t kChunkBytes = 64 * 1024;

// Elements [0, count) in pieces of a chunk each. Even nothing is one chunk: ranks that disagree
// about whether there is something would not notice otherwise.
class Pieces {
 public:
  Pieces(std::size_t count, Dtype dtype) : count_(count), size_(size_of(dtype)) {}

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

 private:
  std::size_t per_chunk() const { return kChunkBytes / size_; }

  std::size_t count_;
  std::size_t size_;
};

// The slots that one stream of chunks uses, in turn.
struct Lanes {
  int first = 0;
  int count = kSlots;

  int slot(std::uint32_t chunk) const {
    return first + static_cast<int>(chunk % static_cast<unsigned>(count));
  }
};

// One end of a stream of chunks between this rank and a peer.
class Stream {
 public:
  Stream(MailboxBase& mailbox, int peer, const Pieces& pieces, Lanes lanes = {})
      : mailbox_(&mailbox), peer_(peer), pieces_(pieces), lanes_(lanes), chunks_(pieces.chunks()) {}

  bool done() const { return next_ == chunks_; }
  std::uint32_t next() const { return next_; }
  int peer() const { return peer_; }
  const Pieces& pieces() const { return pieces_; }

 protected:
  int slot() const { return lanes_.slot(next_); }
  Tag numbered(Tag tag) const {
    tag.chunk = next_;
    return tag;
  }

  MailboxBase* mailbox_;
  int peer_;
  Pieces pieces_;
  Lanes lanes_;
  std::uint32_t chunks_;
  std::uint32_t next_ = 0;
};

class Sender : public Stream {
 public:
  Sender(MailboxBase& mailbox, int peer, const void* data, const Pieces& pieces, Lanes lanes = {})
      : Stream(mailbox, peer, pieces, lanes), data_(static_cast<const std::byte*>(data)) {}

  // Sends the next chunk where there is one and room for it.
  bool send_next(const Tag& tag);

  Awaited awaited(const Tag& tag) const {
    return {.peer = peer_, .tag = numbered(tag), .room = true};
  }

 private:
  const std::byte* data_;
};

class Receiver : public Stream {
 public:
  Receiver(MailboxBase& mailbox, int peer, const Pieces& pieces, Lanes lanes = {})
      : Stream(mailbox, peer, pieces, lanes) {}

  // Whether the next chunk is here; then its data, until take() gives it back.
  bool arrived(const Tag& tag) const {
    return !done() && mailbox_->arrived(peer_, slot(), numbered(tag));
  }
  const std::byte* data() const { return mailbox_->inbox(peer_, slot()); }
  void take() {
    mailbox_->release(peer_, slot());
    ++next_;
  }

  // Copies the next chunk to its place in `out`, where it is here.
  bool receive_next(const Tag& tag, std::byte* out);

  Awaited awaited(const Tag& tag) const { return {.peer = peer_, .tag = numbered(tag)}; }
};

}  // namespace plait::comm
