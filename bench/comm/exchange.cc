#include "exchange.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/futex.h"
#include "plait/collectives.h"
#include "plait/error.h"
#include "plait/mailbox.h"

namespace plait::bench {
namespace {

// The chunks of the two ranks differ everywhere, and so does each from itself shifted.
std::byte content(std::size_t i, int rank) {
  return static_cast<std::byte>((i * 7 + i / 251 + static_cast<std::size_t>(rank) * 101) & 0xff);
}

constexpr std::size_t kStamp = sizeof(std::uint64_t);

}  // namespace

StampedBuffers::StampedBuffers(std::size_t bytes, int rank)
    : outgoing_(bytes), incoming_(bytes), rank_(rank) {
  for (std::size_t i = 0; i < bytes; ++i) outgoing_[i] = content(i, rank);
}

void StampedBuffers::load(std::byte* chunk) {
  ++sent_;
  if (bytes() >= kStamp) std::memcpy(outgoing_.data(), &sent_, kStamp);
  std::memcpy(chunk, outgoing_.data(), bytes());
}

void StampedBuffers::unload(const std::byte* chunk) {
  ++received_;
  std::memcpy(incoming_.data(), chunk, bytes());
  if (bytes() < kStamp) return;
  std::uint64_t stamp = 0;
  std::memcpy(&stamp, incoming_.data(), kStamp);
  if (stamp != received_) [[unlikely]]
    base::fail(Code::mismatch, "chunk ", received_, " arrived with the stamp of chunk ", stamp);
}

void StampedBuffers::verify() const {
  if (received_ == 0) return;
  for (std::size_t i = std::min(kStamp, bytes()); i < bytes(); ++i) {
    if (incoming_[i] != content(i, 1 - rank_))
      base::fail(Code::mismatch, "byte ", i, " of ", bytes(), " arrived as ",
                 std::to_integer<int>(incoming_[i]), ", not as ",
                 std::to_integer<int>(content(i, 1 - rank_)));
  }
}

MailboxExchange::MailboxExchange(Communicator& comm, std::size_t bytes)
    : buffers_(bytes, comm.rank()),
      mailbox_(comm.make_mailbox({.slots = kSlots, .slot_bytes = bytes})),
      peer_(1 - comm.rank()) {}

void MailboxExchange::send() {
  const int slot = static_cast<int>(sent_ % kSlots);
  buffers_.load(mailbox_->outbox(peer_, slot));
  mailbox_->post(peer_, slot, {.call = sent_}, buffers_.bytes());
  ++sent_;
}

void MailboxExchange::receive() {
  const int slot = static_cast<int>(received_ % kSlots);
  mailbox_->wait_arrived(peer_, slot, {.call = received_});
  buffers_.unload(mailbox_->inbox(peer_, slot));
  mailbox_->release(peer_, slot);
  ++received_;
}

BareExchange::BareExchange(BenchRank& self, std::size_t bytes)
    : buffers_(bytes, self.comm.rank()),
      out_(way(self.common, std::min(self.comm.rank(), 1))),
      in_(way(self.common, 1 - std::min(self.comm.rank(), 1))) {
  const std::size_t used = 2 * way_bytes();
  PLAIT_CHECK(used <= BenchRank::kCommonBytes, "chunks of ", bytes,
              " bytes are too large to be bare");
  // The exchange before this one may have left its numbers.
  barrier(self.comm);
  if (self.comm.rank() == 0) std::memset(self.common, 0, used);
  barrier(self.comm);
}

std::size_t BareExchange::chunk_bytes() const { return (64 + buffers_.bytes() + 127) / 128 * 128; }
std::size_t BareExchange::way_bytes() const { return sizeof(Number) + kChunks * chunk_bytes(); }

BareExchange::Way BareExchange::way(std::byte* common, int from) const {
  std::byte* begin = common + static_cast<std::size_t>(from) * way_bytes();
  Way way = {.released = reinterpret_cast<Number*>(begin), .chunks = {}};
  for (std::size_t i = 0; i < kChunks; ++i)
    way.chunks[i] = reinterpret_cast<Number*>(begin + sizeof(Number) + i * chunk_bytes());
  return way;
}

// Memory ordering: the bytes are written before the number (release), which receive() reads first
// (acquire).
void BareExchange::send() {
  ++sent_;
  // Pairs with receive(), which reads the chunk before it gives the chunk back.
  while (sent_ > out_.released->value.load(std::memory_order_acquire) + kChunks) base::pause();
  Number* chunk = out_.chunks[sent_ % kChunks];
  buffers_.load(payload(chunk));
  chunk->value.store(sent_, std::memory_order_release);
}

void BareExchange::receive() {
  ++received_;
  Number* chunk = in_.chunks[received_ % kChunks];
  while (chunk->value.load(std::memory_order_acquire) != received_) base::pause();
  buffers_.unload(payload(chunk));
  in_.released->value.store(received_, std::memory_order_release);
}

}  // namespace plait::bench
