// What every mailbox shares: its group, the checks of its arguments, and waiting.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "comm/group.h"
#include "comm/polling.h"
#include "comm/wait.h"
#include "plait/mailbox.h"

namespace plait::comm {

// A mailbox is also asked by the collectives and the emulated link for what its users need not
// know.
class MailboxBase : public Mailbox {
 public:
  MailboxBase(Group& group, const MailboxDesc& desc)
      : group_(group), desc_(desc), polling_(group, desc.slots) {}
  ~MailboxBase() override;

  const MailboxDesc& desc() const final { return desc_; }
  void wait_arrived(int source, int slot, const Tag& tag) final;
  void progress() override;

  // Moves bytes where the transport needs the caller's help: progress() without its patience, for
  // the collectives, which have their own.
  virtual void help() {}

  Group& group() { return group_; }

  // Whether a chunk's reader may answer in its place: where both ends have mapped the slot, what
  // the reader writes over the chunk is there for the poster to read, and the memory that has just
  // moved to the reader's cache need not be written anew by anybody.
  virtual bool takes_answers() const { return false; }

  // Where to write the answer to the chunk that arrived, before its release(); then the answer to
  // the last chunk posted to a channel, null until the peer has released it.
  virtual std::byte* answer_box(int source, int slot);
  virtual const std::byte* answer(int peer, int slot);

  // Refuses a chunk that has arrived and is not of the expected size. Which part of a call it is
  // follows from sizes that no tag carries: ranks that cut differently are not to take one part for
  // another.
  void check_size(int source, int slot, const Tag& tag, std::size_t expected) {
    const std::size_t came = inbox_bytes(source, slot);
    if (came != expected) [[unlikely]]
      refuse_size(source, tag, came, expected);
  }

  // For a call that ends without a chunk from `source`: refuses the next one where it is here, and
  // of the same call with another tag. Where ranks see each other's calls that is not needed.
  virtual void check_next(int /*source*/, int /*slot*/, const Tag& /*tag*/) {}

  // Bytes of this rank's memory that the mailbox holds.
  virtual std::size_t held_bytes() const = 0;

  // Counts held_bytes() in `account` for as long as the mailbox lives.
  void charge(const std::shared_ptr<std::atomic<std::size_t>>& account);

  // When the channel's next chunk, which has not arrived, will be here; kNever when that is not
  // known.
  virtual Nanoseconds due_of(int /*source*/, int /*slot*/, const Tag& /*tag*/) { return kNever; }

  // When the peer can have read the chunk whose place the channel's next one takes; kNever when
  // that is not known, or has been.
  virtual Nanoseconds room_due_of(int /*peer*/, int /*slot*/) { return kNever; }

  // The earliest such time among all that arrived() and vacant() were asked for since the last
  // call. For a mailbox that only one thread uses, like the collectives' own.
  virtual Nanoseconds take_due() { return kNever; }

 protected:
  void check_channel(const char* what, int peer, int slot) const {
    if (peer < 0 || peer >= group_.world() || slot < 0 || slot >= desc_.slots || group_.in_child())
        [[unlikely]] {
      refuse_channel(what, peer, slot);
    }
  }
  void check_arrived(const char* what, bool has_come, int source, int slot) const {
    if (!has_come) [[unlikely]]
      refuse_too_early(what, source, slot);
  }
  void check_bytes(int slot, std::size_t bytes) const {
    if (bytes > desc_.slot_bytes) [[unlikely]]
      refuse_bytes(slot, bytes);
  }
  // The answers of arrived() and vacant() where they are no, and what is to be told of post() and
  // release(): by it progress() knows whether a rank that polls does so in vain.
  bool not_yet(int source, int slot, const Tag& tag) {
    polling_.note_refusal(source, slot, tag, false);
    return false;
  }
  bool no_room(int peer, int slot) {
    polling_.note_refusal(peer, slot, {}, true);
    return false;
  }
  void note_move() { polling_.note_move(); }

  // For the destructor of a mailbox that keeps its group alive.
  void end_polling() noexcept { polling_.end(); }

  void wait_vacant(int peer, int slot);
  [[noreturn]] void refuse_tag(int source, const Tag& came, const Tag& expected);

 private:
  void check_not_forked(const char* what) const;
  [[noreturn]] void refuse_channel(const char* what, int peer, int slot) const;
  [[noreturn]] void refuse_too_early(const char* what, int source, int slot) const;
  [[noreturn]] void refuse_bytes(int slot, std::size_t bytes) const;
  [[noreturn]] void refuse_size(int source, const Tag& tag, std::size_t came, std::size_t expected);

  Group& group_;
  MailboxDesc desc_;
  Polling polling_;
  std::shared_ptr<std::atomic<std::size_t>> account_;
  std::size_t charged_ = 0;
};

// Refuses what no mailbox can be made of, before anything is shared.
void check_desc(const MailboxDesc& desc, int world);

// The text by which ranks notice that they are making different mailboxes.
std::string describe(const MailboxDesc& desc);

}  // namespace plait::comm
