#include "comm/core/mailbox.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "comm/core/executor.h"
#include "comm/core/whereabouts.h"

namespace plait {

Mailbox::Mailbox(std::unique_ptr<State> state) : state_(std::move(state)) {}
Mailbox::~Mailbox() = default;

const MailboxDesc& Mailbox::desc() const { return state_->desc(); }
bool Mailbox::vacant(int peer, int slot) { return state_->vacant(peer, slot); }
std::byte* Mailbox::outbox(int peer, int slot) { return state_->outbox(peer, slot); }
void Mailbox::post(int peer, int slot, const Tag& tag, std::size_t bytes) {
  state_->post(peer, slot, tag, bytes);
}
bool Mailbox::arrived(int source, int slot, const Tag& tag) {
  return state_->arrived(source, slot, tag);
}
const std::byte* Mailbox::inbox(int source, int slot) { return state_->inbox(source, slot); }
std::size_t Mailbox::inbox_bytes(int source, int slot) { return state_->inbox_bytes(source, slot); }
void Mailbox::release(int source, int slot) { state_->release(source, slot); }
void Mailbox::progress() { state_->progress(); }
void Mailbox::wait_arrived(int source, int slot, const Tag& tag) {
  state_->wait_arrived(source, slot, tag);
}

Mailbox::State::State(comm::Group& group, const MailboxDesc& desc,
                      std::unique_ptr<comm::SlotTransport> slots, Account account)
    : group_(group),
      desc_(desc),
      slots_(std::move(slots)),
      takes_answers_(slots_->takes_answers() && !desc.poison),
      polling_(group, desc.slots),
      account_(std::move(account)) {
  if (account_ == nullptr) return;
  charged_ = slots_->held_bytes();
  account_->fetch_add(charged_, std::memory_order_relaxed);
}

// The slots may be the last to hold the group. Memory ordering: relaxed; a figure to be shown.
Mailbox::State::~State() {
  polling_.end();
  slots_.reset();
  if (account_ != nullptr) account_->fetch_sub(charged_, std::memory_order_relaxed);
}

void Mailbox::State::wait_arrived(int source, int slot, const Tag& tag) {
  comm::Nanoseconds due = comm::kNever;
  comm::wait_until(
      group_,
      [&] {
        due = due_of(source, slot, tag);
        return is_here(due);
      },
      [&] { return due; }, [&] { return comm::Awaited{.peer = source, .tag = tag}; });
}

std::byte* Mailbox::State::wait_for_room(int peer, int slot) {
  comm::Vacancy room;
  comm::wait_until(
      group_,
      [&] {
        check_channel("vacant", peer, slot);
        room = poll_outbox(peer, slot);
        return room.place != nullptr;
      },
      [&] { return room.due; },
      [&] { return comm::Awaited{.peer = peer, .tag = {}, .room = true}; });
  return room.place;
}

// Called between tiles: a cheap poll and a clock reading each time.
void Mailbox::State::progress() {
  check_not_forked("progress");
  slots_->move();
  group_.raise_if_failed();
  comm::Executor* const executor = group_.executor();
  if (executor == nullptr || !executor->poll()) polling_.poll();
}

bool Mailbox::State::has_become_due(comm::Nanoseconds due) {
  if (due <= base::now()) return true;
  note_due(due);
  return false;
}

void Mailbox::State::note_due(comm::Nanoseconds due) {
  comm::Nanoseconds known = due_.load(std::memory_order_relaxed);
  while (due < known && !due_.compare_exchange_weak(known, due, std::memory_order_relaxed)) {
  }
}

void Mailbox::State::poison(int source, int slot) {
  constexpr std::byte kPoison{0xA5};
  const comm::Arrival came = slots_->inbox(source, slot);
  if (came.data != nullptr) std::fill_n(came.data, desc_.slot_bytes, kPoison);
}

void Mailbox::State::check_next(int source, int slot, const Tag& tag) {
  slots_->move_surely();
  const comm::Arrival came = slots_->inbox(source, slot);
  if (came.data == nullptr || came.tag->call != tag.call) return;
  Tag expected = tag;
  expected.chunk = came.tag->chunk;
  if (*came.tag != expected) refuse_tag(source, *came.tag, expected);
}

void Mailbox::State::refuse_tag(int source, const Tag& came, const Tag& expected) {
  const int rank = group_.rank();
  group_.fail_and_raise({Code::mismatch, source, comm::disagreement(expected, rank, source, came)});
}

void Mailbox::State::refuse_size(int source, const Tag& tag, std::size_t came,
                                 std::size_t expected) {
  const int rank = group_.rank();
  group_.fail_and_raise(
      {Code::mismatch, source,
       base::sentence(name(tag.operation), ": rank ", rank, " and rank ", source,
                      " disagree on the size of a chunk: ", expected, " and ", came, " bytes")});
}

void Mailbox::State::check_not_forked(const char* what) const {
  PLAIT_CHECK(!group_.in_child(), what, ": this process was forked from rank ", group_.rank(),
              ", whose mailboxes it cannot use");
}

void Mailbox::State::refuse_channel(const char* what, int peer, int slot) const {
  check_not_forked(what);
  PLAIT_CHECK(peer >= 0 && peer < group_.world(), what, ": there is no rank ", peer,
              " in a world of ", group_.world());
  base::fail(Code::invalid_argument, what, ": slot ", slot, " is not one of the mailbox's ",
             desc_.slots);
}

void Mailbox::State::refuse_too_early(const char* what, int source, int slot) const {
  base::fail(Code::invalid_argument, what, ": the chunk in slot ", slot, " from rank ", source,
             " has not arrived");
}

void Mailbox::State::refuse_bytes(int slot, std::size_t bytes) const {
  base::fail(Code::invalid_argument, "post: a chunk of ", bytes, " bytes does not fit slot ", slot,
             " of ", desc_.slot_bytes);
}

void Mailbox::State::refuse_answers(const char* what) const {
  base::fail(Code::invalid_argument, what, ": this mailbox takes no answers");
}

namespace comm {

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
