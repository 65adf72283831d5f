// A mailbox from the inside: the checks of its arguments, waiting, and the patience of a rank that
// polls, over what a transport implements (slot_transport.h).
//
// Each function makes one virtual call where it need not wait. They are inline for the collectives
// and the operators, whose every chunk passes here.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "comm/core/group.h"
#include "comm/core/polling.h"
#include "comm/core/slot_transport.h"
#include "comm/core/wait.h"
#include "plait/mailbox.h"

namespace plait {

class Mailbox::State {
 public:
  using Account = std::shared_ptr<std::atomic<std::size_t>>;

  // Counts the memory that it holds in `account`, where there is one, for as long as it lives.
  State(comm::Group& group, const MailboxDesc& desc, std::unique_ptr<comm::SlotTransport> slots,
        Account account = nullptr);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  comm::Group& group() { return group_; }

  // The functions of Mailbox.
  const MailboxDesc& desc() const { return desc_; }
  bool vacant(int peer, int slot) {
    check_channel("vacant", peer, slot);
    return poll_outbox(peer, slot).place != nullptr;
  }
  std::byte* outbox(int peer, int slot) {
    check_channel("outbox", peer, slot);
    const comm::Vacancy room = poll_outbox(peer, slot);
    return room.place != nullptr ? room.place : wait_for_room(peer, slot);
  }
  void post(int peer, int slot, const Tag& tag, std::size_t bytes) {
    check_channel("post", peer, slot);
    if (bytes > desc_.slot_bytes) [[unlikely]]
      refuse_bytes(slot, bytes);
    while (!slots_->post(peer, slot, tag, bytes)) [[unlikely]]
      wait_for_room(peer, slot);
    polling_.note_move();
  }
  bool arrived(int source, int slot, const Tag& tag) { return is_here(due_of(source, slot, tag)); }
  const std::byte* inbox(int source, int slot) { return chunk_in("inbox", source, slot).data; }
  std::size_t inbox_bytes(int source, int slot) {
    return chunk_in("inbox_bytes", source, slot).bytes;
  }
  void release(int source, int slot) {
    check_channel("release", source, slot);
    if (desc_.poison) [[unlikely]]
      poison(source, slot);
    if (!slots_->release(source, slot)) [[unlikely]]
      refuse_too_early("release", source, slot);
    polling_.note_move();
  }
  void progress();
  void wait_arrived(int source, int slot, const Tag& tag);

  // Moves bytes where the transport needs the caller's help: progress() without its patience, for
  // the collectives, which have their own.
  void help() { slots_->move(); }

  // Refuses a chunk that has arrived and is not of the expected size. Which part of a call it is
  // follows from sizes that no tag carries: ranks that cut differently are not to take one part for
  // another.
  void check_size(int source, int slot, const Tag& tag, std::size_t expected) {
    const std::size_t came = inbox_bytes(source, slot);
    if (came != expected) [[unlikely]]
      refuse_size(source, tag, came, expected);
  }

  // For a call that ends without a chunk from `source`: refuses the next one where it is here, and
  // of the same call with another tag.
  void check_next(int source, int slot, const Tag& tag);

  // True if a chunk's reader may answer in its place. Poison would overwrite the answer.
  bool takes_answers() const { return takes_answers_; }

  // The place for the answer to the chunk that arrived, before its release(); then the answer to
  // the last chunk posted to a channel, null until the peer has released it.
  std::byte* answer_box(int source, int slot) {
    check_answers("answer_box", source, slot);
    return slots_->inbox(source, slot).data;
  }
  const std::byte* answer(int peer, int slot) {
    check_answers("answer", peer, slot);
    return slots_->answer(peer, slot);
  }

  // When the channel's next chunk is here or will be; kNever: that is not known. Refuses another
  // tag.
  comm::Nanoseconds due_of(int source, int slot, const Tag& tag) {
    check_channel("arrived", source, slot);
    const comm::Arrival came = slots_->inbox(source, slot);
    if (came.data == nullptr) {
      polling_.note_refusal(source, slot, tag, false);
      return comm::kNever;
    }
    if (*came.tag != tag) [[unlikely]]
      refuse_tag(source, *came.tag, tag);
    return came.due;
  }

  // The earliest time at which something will be here that arrived() and vacant() were asked for
  // since the last call; kNever: none is known. For a mailbox that only one thread uses.
  //
  // Relaxed: a hint for how long to sleep, and a lost one costs a nap of the usual length.
  comm::Nanoseconds take_due() {
    if (due_.load(std::memory_order_relaxed) == comm::kNever) return comm::kNever;
    return due_.exchange(comm::kNever, std::memory_order_relaxed);
  }

 private:
  void check_channel(const char* what, int peer, int slot) const {
    if (peer < 0 || peer >= group_.world() || slot < 0 || slot >= desc_.slots || group_.in_child())
        [[unlikely]] {
      refuse_channel(what, peer, slot);
    }
  }
  void check_answers(const char* what, int peer, int slot) const {
    if (!takes_answers_) [[unlikely]]
      refuse_answers(what);
    check_channel(what, peer, slot);
  }

  // "Not yet" is told to polling_: by it progress() knows whether a rank that polls does so in
  // vain. What is known to come is not asked for in vain.
  comm::Vacancy poll_outbox(int peer, int slot) {
    const comm::Vacancy room = slots_->outbox(peer, slot);
    if (room.place != nullptr) return room;
    if (room.due == comm::kNever) {
      polling_.note_refusal(peer, slot, {}, true);
    } else {
      note_due(room.due);
    }
    return room;
  }
  bool is_here(comm::Nanoseconds due) {
    return due == 0 || (due != comm::kNever && has_become_due(due));
  }
  comm::Arrival chunk_in(const char* what, int source, int slot) {
    check_channel(what, source, slot);
    const comm::Arrival came = slots_->inbox(source, slot);
    if (came.data == nullptr || (came.due != 0 && came.due > base::now())) [[unlikely]]
      refuse_too_early(what, source, slot);
    return came;
  }
  std::byte* wait_for_room(int peer, int slot);
  bool has_become_due(comm::Nanoseconds due);
  void note_due(comm::Nanoseconds due);
  void poison(int source, int slot);

  void check_not_forked(const char* what) const;
  [[noreturn]] void refuse_channel(const char* what, int peer, int slot) const;
  [[noreturn]] void refuse_too_early(const char* what, int source, int slot) const;
  [[noreturn]] void refuse_bytes(int slot, std::size_t bytes) const;
  [[noreturn]] void refuse_answers(const char* what) const;
  [[noreturn]] void refuse_tag(int source, const Tag& came, const Tag& expected);
  [[noreturn]] void refuse_size(int source, const Tag& tag, std::size_t came, std::size_t expected);

  comm::Group& group_;
  MailboxDesc desc_;
  std::unique_ptr<comm::SlotTransport> slots_;
  bool takes_answers_;
  std::atomic<comm::Nanoseconds> due_{comm::kNever};
  comm::Polling polling_;
  Account account_;
  std::size_t charged_ = 0;
};

namespace comm {

// Refuses what no mailbox can be made of, before anything is shared.
void check_desc(const MailboxDesc& desc, int world);

// The text by which ranks notice that they are making different mailboxes.
std::string describe(const MailboxDesc& desc);

}  // namespace comm
}  // namespace plait
