#include "comm/core/group.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "comm/core/interruption.h"

namespace plait::comm {
namespace {

// How long a rank that is to record a failure may take to answer, and how many that compute instead
// are asked.
constexpr Nanoseconds kForTheRecord = base::kSecond / 2;
constexpr int kMostSilent = 2;

}  // namespace

void Group::descend_from(std::shared_ptr<const Group> parent, std::vector<int> members) {
  parent_ = std::move(parent);
  members_in_parent_ = std::move(members);
}

// A peer that has heard of an abort may be gone already: that is no failure of this group.
void Group::fail(const Failure& failure) noexcept {
  if (!parent_aborted()) end(End::failure, failure);
}

void Group::abort(const Failure& failure) noexcept {
  end(End::abort, failure);
  end(End::failure, failure);
}

Failure Group::failure() const {
  if (has_ended(End::failure)) return record_of(End::failure);
  Failure above = parents_abort();
  above.sentence = "in the group that this one was split off, " + above.sentence;
  return above;
}

// Its culprit as a rank of this group, where it is one.
Failure Group::parents_abort() const {
  Failure above =
      parent_->has_ended(End::abort) ? parent_->record_of(End::abort) : parent_->parents_abort();
  const auto begin = members_in_parent_.begin();
  const auto found = std::find(begin, members_in_parent_.end(), above.culprit);
  above.culprit =
      found == members_in_parent_.end() ? Error::kNoRank : static_cast<int>(found - begin);
  return above;
}

Group::Origin Group::origin_of(int rank) const noexcept {
  if (parent_ == nullptr) return {.root = this, .rank = rank};
  return parent_->origin_of(members_in_parent_[static_cast<std::size_t>(rank)]);
}

void Group::show_wait_elsewhere(const Group* other, const Awaited* awaited) noexcept {
  if (awaited == nullptr) return show_elsewhere(nullptr);
  Elsewhere elsewhere = {.peer = -1, .operation = awaited->tag.operation, .waits = 1};
  const Origin origin = other->origin_of(awaited->peer);
  for (int peer = 0; peer < world() && elsewhere.peer < 0; ++peer) {
    if (origin_of(peer) == origin) elsewhere.peer = peer;
  }
  show_elsewhere(&elsewhere);
}

void PublishedWait::show_elsewhere(const Awaited* awaited) noexcept {
  if (!group_.in_child() && group_.policy().show_wait) group_.policy().show_wait(group_, awaited);
}

void Group::interrupt_if_asked(const Awaited* awaited) {
  try {
    if (policy_.interrupted) policy_.interrupted();
    const auto me = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
    if (poll_thread_.load(std::memory_order_relaxed) == me) [[unlikely]]
      call_poll_hook();
  } catch (...) {
    note_interruption(awaited);
    throw;
  }
}

// Waits in the hook itself don't call it.
void Group::call_poll_hook() {
  const PollHook* const hook = poll_hook_;
  set_poll_hook(nullptr);
  try {
    hook->hook();
  } catch (...) {
    fail(failure_of_caught(hook->call, rank_));
    throw;
  }
  set_poll_hook(hook);
}

void Group::set_poll_hook(const PollHook* hook) noexcept {
  const void* const me = hook == nullptr ? nullptr : __builtin_thread_pointer();
  poll_hook_ = hook;
  poll_thread_.store(reinterpret_cast<std::uintptr_t>(me), std::memory_order_relaxed);
}

PollHookInWaits::PollHookInWaits(Group& group, std::string_view call,
                                 const std::function<void()>& hook)
    : group_(group), hook_{.call = call, .hook = Interruption::counted(hook)} {
  if (hook_.hook) group_.set_poll_hook(&hook_);
}

void Group::note_interruption(const Awaited* awaited) noexcept {
  const std::string where = awaited == nullptr ? "" : describe(*awaited, rank_) + "; ";
  fail({.code = Code::peer_lost,
        .culprit = rank_,
        .sentence = base::sentence(where, "rank ", rank_, " was interrupted")});
  // Relaxed: read by this thread on its way out. Others find the group failed.
  interrupted_.store(true, std::memory_order_relaxed);
}

void Group::raise() const {
  const Failure why = failure();
  throw Error(why.code, why.sentence, why.culprit);
}

Failure failure_of_caught(std::string_view call, int rank) {
  const auto failure = [&](const char* why) {
    return Failure{.code = Code::system,
                   .culprit = rank,
                   .sentence = base::sentence(call, ": rank ", rank, ": ", why)};
  };
  try {
    throw;
  } catch (const Error& error) {
    return failure_of(error);
  } catch (const std::exception& error) {
    return failure(error.what());
  } catch (...) {
    return failure("something was thrown that is no exception");
  }
}

std::string describe(const Awaited& awaited, int rank) {
  const Operation operation = awaited.tag.operation;
  if (awaited.peer == Error::kNoRank)
    return base::sentence(name(operation), ": rank ", rank, " waits for no chunk any more");
  if (awaited.room && operation == Operation::custom) {
    return base::sentence("outbox: rank ", rank, " waits for rank ", awaited.peer,
                          " to release a chunk");
  }
  if (awaited.room) {
    return base::sentence(name(operation), ": rank ", rank, " waits for rank ", awaited.peer,
                          " to make room for chunk ", awaited.tag.chunk);
  }
  if (is_multiplying(awaited, rank)) {
    return base::sentence(name(operation), ": rank ", rank, " multiplies, and is at chunk ",
                          awaited.tag.chunk);
  }
  if (is_set_up(operation)) {
    const std::string subject = base::sentence(name(operation), ": rank ", rank);
    if (awaited.peer == rank) return subject + " has met the others";
    return base::sentence(subject, " waits for rank ", awaited.peer, " to join");
  }
  return base::sentence(name(operation), ": rank ", rank, " waits for chunk ", awaited.tag.chunk,
                        " from rank ", awaited.peer);
}

std::string describe_poll(const Awaited* awaited, int rank) {
  return awaited == nullptr ? base::sentence("rank ", rank, " polls its peers")
                            : describe(*awaited, rank);
}

bool Group::is_recorded_elsewhere(const Failure& failure, const Reporting& reporting) const {
  int first = 0;  // the ranks below it have not answered
  int asked = rank_;
  int silent = 0;
  Nanoseconds asked_at = 0;
  while (silent < kMostSilent) {
    const auto is_late = [&](int peer) {
      return failure.code == Code::timeout && peer == failure.culprit;
    };
    int recorder = first;
    while (recorder < rank_ && (is_late(recorder) || !reporting.is_there(recorder))) ++recorder;
    if (has_ended(End::failure)) return true;
    if (recorder >= rank_) return false;
    if (recorder != asked) {
      reporting.report(recorder);
      asked = recorder;
      asked_at = base::now();
    }
    reporting.wait();
    if (base::now() - asked_at < kForTheRecord) continue;
    first = asked + 1;
    ++silent;
  }
  return has_ended(End::failure);
}

Error seen_from_parent(const Error& error, const std::vector<int>& members) {
  const int there = error.culprit();
  const int count = static_cast<int>(members.size());
  if (there < 0 || there >= count) return error;
  const bool is_whole =
      std::is_sorted(members.begin(), members.end()) && members.back() == count - 1;
  if (is_whole) return error;  // with the same numbers
  return {error.code(),
          base::sentence("split: rank ", members[there], ", rank ", there,
                         " of the new group: ", error.what()),
          members[there]};
}

void check_same_purpose(int rank, const std::string& mine, int peer, const std::string& theirs) {
  if (mine == theirs) return;
  // Every rank finds the same two: the lower rank is named first by both.
  const bool first = rank < peer;
  throw Error(
      Code::mismatch,
      base::sentence("rank ", first ? rank : peer, " makes a ", first ? mine : theirs,
                     " while rank ", first ? peer : rank, " makes a ", first ? theirs : mine),
      peer);
}

}  // namespace plait::comm
