// Lanes on which the chunks of calls go to every peer and come from every peer.
//
//   lanes.begin(tag);
//   if (lanes.vacant(Way::out, peer)) { write to lanes.outbox(Way::out, peer); lanes.post(...); }
//   if (lanes.arrived(Way::out, peer)) { read lanes.inbox(Way::out, peer, n); lanes.release(...); }
//
// A lane is a run of a mailbox's slots that chunks take in turn. Two ranks use the lanes between
// them in the same order, so both know in which slot the next chunk is, and which number it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/core/executor.h"
#include "comm/core/mailbox.h"
#include "comm/flow/hosts.h"
#include "plait/tag.h"

namespace plait::comm {

// Chunks go out to the ranks they belong to, and what those made of them comes back.
enum class Way : std::uint8_t { out, back };

class Lanes {
 public:
  struct Shape {
    int ways;                // lanes to each peer
    std::uint32_t per_lane;  // slots, a power of two
    // True if others use the mailbox between the calls. Then each call begins at the first slot.
    // Otherwise chunks go on where the call before left off: a slot that is written again has then
    // left the reader's innermost cache, from which it is dearest to take back. (64 KiB each way in
    // 16 KiB chunks: 6.5 µs through 16 buffers, 10 µs through 2.)
    bool is_shared = false;
    bool is_traced = false;  // true if work on chunks is recorded
  };
  Lanes(Group& group, const Shape& shape);

  // Between calls. The mailbox has a slot for each of all lanes' slots, or more.
  void use(Mailbox::State& mailbox) { mailbox_ = &mailbox; }

  // The next call; `tag` is that of its chunks, but for their numbers.
  void begin(const Tag& tag);

  // For the rest of the call, a tag also says how many elements travel between the two ranks.
  // `sent` and `received` are by peer, and must live as long as the call.
  void set_counts(std::span<const std::size_t> sent, std::span<const std::size_t> received) {
    sent_ = sent;
    received_ = received;
  }

  int rank() const { return rank_; }
  int world() const { return world_; }
  std::uint32_t per_lane() const { return per_lane_; }

  // Each rank as if it were on a host of its own.
  const Hosts& apart() const { return apart_; }
  // The other ranks, from this one's successor on, so that not all talk to one at once.
  const std::vector<int>& peers() const { return apart_.counterparts(); }

  // Does work with bytes, unless there is an executor that takes it. To it alone it is described.
  template <class Describe, class Work>
  void run(Describe&& describe, Work&& work) const {
    Executor* const executor = group_.executor();
    if (executor == nullptr || !executor->run(describe())) work();
  }

  // The trace that records work on chunks; null: there is none.
  Trace* trace() const { return is_traced_ ? group_.trace() : nullptr; }

  // These are about the lane's next chunk.
  bool vacant(Way way, int peer) const { return mailbox_->vacant(peer, slot_out(way, peer)); }
  std::byte* outbox(Way way, int peer) { return mailbox_->outbox(peer, slot_out(way, peer)); }
  void post(Way way, int peer, std::size_t bytes);

  bool arrived(Way way, int source) const {
    return mailbox_->arrived(source, slot_in(way, source), tag_in(way, source));
  }
  // The chunk that has arrived, which must be as large as this rank has cut it.
  const std::byte* inbox(Way way, int source, std::size_t bytes) const {
    const int slot = slot_in(way, source);
    mailbox_->check_size(source, slot, tag_in(way, source), bytes);
    return mailbox_->inbox(source, slot);
  }
  // The chunk that has arrived, whose size only its sender knows.
  std::span<const std::byte> inbox(Way way, int source) const {
    const int slot = slot_in(way, source);
    return {mailbox_->inbox(source, slot), mailbox_->inbox_bytes(source, slot)};
  }
  void release(Way way, int source);

  // Refuses a chunk that is there although the call ends without one from this peer.
  void check_none(Way way, int source) { mailbox_->check_next(source, slot_in(way, source), tag_); }

  // How many chunks of this call have gone to the peer, and how many of its have been released.
  std::uint32_t posted(Way way, int peer) const { return at(way, peer).posted; }
  std::uint32_t taken(Way way, int peer) const { return at(way, peer).taken; }

  // If the mailbox takes answers: the place of the answer to the chunk that has arrived, before its
  // release().
  bool takes_answers() const { return mailbox_->takes_answers(); }
  std::byte* answer_box(Way way, int source) {
    return mailbox_->answer_box(source, slot_in(way, source));
  }
  // The answer to the first chunk that was posted and whose answer has not been taken; null until
  // it is here. At most per_lane() chunks may be without one.
  const std::byte* answer(Way way, int peer) {
    return mailbox_->answer(peer, slot_answered(way, peer));
  }
  void take_answer(Way way, int peer) {
    ++positions_[index(way, peer)].answered;
    ++moves_;
  }
  std::uint32_t answered(Way way, int peer) const { return at(way, peer).answered; }

  Awaited chunk_from(Way way, int source) const {
    return {.peer = source, .tag = tag_in(way, source)};
  }
  Awaited room_at(Way way, int peer) const {
    return {.peer = peer, .tag = tag_out(way, peer), .room = true};
  }
  Awaited answer_from(Way way, int peer) const {
    return {.peer = peer, .tag = tag_of(answered(way, peer), sent_, peer)};
  }
  Awaited nothing_awaited() const { return comm::nothing_awaited(tag_); }

  // Chunks posted and released, and answers taken, in all calls (see Question).
  const std::uint64_t& moves() const { return moves_; }

 protected:
  Group& group() const { return group_; }
  Mailbox::State& mailbox() const { return *mailbox_; }

 private:
  struct Position {
    std::uint32_t posted = 0;
    std::uint32_t taken = 0;
    std::uint32_t answered = 0;
    std::uint32_t first_out = 0;  // of this call's chunks among those of all calls
    std::uint32_t first_in = 0;
  };

  std::size_t index(Way way, int peer) const {
    return static_cast<std::size_t>(way) * static_cast<std::size_t>(world()) +
           static_cast<std::size_t>(peer);
  }
  const Position& at(Way way, int peer) const { return positions_[index(way, peer)]; }
  int slot(Way way, std::uint32_t position) const {
    return static_cast<int>(static_cast<std::uint32_t>(way) * per_lane_ +
                            (position & (per_lane_ - 1)));
  }
  int slot_out(Way way, int peer) const {
    const Position& lane = at(way, peer);
    return slot(way, lane.first_out + lane.posted);
  }
  int slot_in(Way way, int source) const {
    const Position& lane = at(way, source);
    return slot(way, lane.first_in + lane.taken);
  }

  int slot_answered(Way way, int peer) const {
    const Position& lane = at(way, peer);
    return slot(way, lane.first_out + lane.answered);
  }

  // No chunk of one way is taken for one of the other: each has slots of its own.
  Tag tag_out(Way way, int peer) const { return tag_of(at(way, peer).posted, sent_, peer); }
  Tag tag_in(Way way, int source) const { return tag_of(at(way, source).taken, received_, source); }
  Tag tag_of(std::uint32_t chunk, std::span<const std::size_t> counts, int peer) const {
    Tag tag = tag_;
    tag.chunk = chunk;
    if (!counts.empty()) [[unlikely]]
      tag.sizes[0] = static_cast<std::int64_t>(counts[static_cast<std::size_t>(peer)]);
    return tag;
  }

  Group& group_;
  int rank_;
  int world_;
  Mailbox::State* mailbox_ = nullptr;
  std::uint32_t per_lane_;
  bool is_shared_;
  bool is_traced_;
  Hosts apart_;
  std::vector<Position> positions_;  // by way and peer
  Tag tag_;
  std::span<const std::size_t> sent_, received_;
  std::uint64_t moves_ = 0;
};

}  // namespace plait::comm
