#include "comm/mailbox_base.h"

#include "base/check.h"
#include "base/text.h"

namespace plait {

Mailbox::~Mailbox() = default;

namespace comm {

// Memory ordering: relaxed; a figure to be shown.
MailboxBase::~MailboxBase() {
  if (account_ != nullptr) account_->fetch_sub(charged_, std::memory_order_relaxed);
}

void MailboxBase::charge(const std::shared_ptr<std::atomic<std::size_t>>& account) {
  account_ = account;
  charged_ = held_bytes();
  account_->fetch_add(charged_, std::memory_order_relaxed);
}

std::byte* MailboxBase::answer_box(int /*source*/, int /*slot*/) {
  base::fail(Code::invalid_argument, "answer_box: this mailbox takes no answers");
}

const std::byte* MailboxBase::answer(int /*peer*/, int /*slot*/) {
  base::fail(Code::invalid_argument, "answer: this mailbox takes no answers");
}

void MailboxBase::wait_arrived(int source, int slot, const Tag& tag) {
  wait_until(
      group_, [&] { return arrived(source, slot, tag); }, [&] { return due_of(source, slot, tag); },
      [&] { return Awaited{.peer = source, .tag = tag}; });
}

void MailboxBase::wait_vacant(int peer, int slot) {
  wait_until(
      group_, [&] { return vacant(peer, slot); }, [&] { return room_due_of(peer, slot); },
      [&] { return Awaited{.peer = peer, .tag = {}, .room = true}; });
}

// Called between tiles: a cheap look and a clock reading each time.
void MailboxBase::progress() {
  check_not_forked("progress");
  help();
  group_.raise_if_failed();
  polling_.look();
}

void MailboxBase::refuse_tag(int source, const Tag& came, const Tag& expected) {
  const int rank = group_.rank();
  group_.fail_and_raise({Code::mismatch, source,
                         base::sentence(name(expected.operation), ": rank ", rank, " and rank ",
                                        source, " disagree on ", difference(expected, came))});
}

void MailboxBase::refuse_size(int source, const Tag& tag, std::size_t came, std::size_t expected) {
  const int rank = group_.rank();
  group_.fail_and_raise(
      {Code::mismatch, source,
       base::sentence(name(tag.operation), ": rank ", rank, " and rank ", source,
                      " disagree on the size of a chunk: ", expected, " and ", came, " bytes")});
}

void MailboxBase::check_not_forked(const char* what) const {
  PLAIT_CHECK(!group_.in_child(), what, ": this process was forked from rank ", group_.rank(),
              ", whose mailboxes it cannot use");
}

void MailboxBase::refuse_channel(const char* what, int peer, int slot) const {
  check_not_forked(what);
  PLAIT_CHECK(peer >= 0 && peer < group_.world(), what, ": there is no rank ", peer,
              " in a world of ", group_.world());
  base::fail(Code::invalid_argument, what, ": slot ", slot, " is not one of the mailbox's ",
             desc_.slots);
}

void MailboxBase::refuse_too_early(const char* what, int source, int slot) const {
  base::fail(Code::invalid_argument, what, ": the chunk in slot ", slot, " from rank ", source,
             " has not arrived");
}

void MailboxBase::refuse_bytes(int slot, std::size_t bytes) const {
  base::fail(Code::invalid_argument, "post: a chunk of ", bytes, " bytes does not fit slot ", slot,
             " of ", desc_.slot_bytes);
}

void check_desc(const MailboxDesc& desc, int world) {
  constexpr std::size_t kMost = std::size_t{1} << 40;
  constexpr int kMostChannels = 1 << 20;
  PLAIT_CHECK(desc.device == kCpu, "make_mailbox: slots on ", name(desc.device),
              ", whose memory this build cannot reach");
  PLAIT_CHECK(desc.slots > 0, "make_mailbox: ", desc.slots, " slots; at least one is needed");
  const bool counted = desc.slots <= kMostChannels / world;
  const std::size_t channels = counted ? static_cast<std::size_t>(desc.slots) * world : 0;
  PLAIT_CHECK(counted && desc.slot_bytes <= kMost / channels / 2, "make_mailbox: ", desc.slots,
              " slots of ", desc.slot_bytes, " bytes for each of ", world,
              " ranks are more than a mailbox can hold");
}

std::string describe(const MailboxDesc& desc) {
  return base::sentence("mailbox of ", desc.slots, " slots of ", desc.slot_bytes, " bytes");
}

}  // namespace comm
}  // namespace plait
