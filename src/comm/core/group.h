// The other ranks, seen from this one: whether they are alive, what they are doing, and how to tell
// them that something failed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/process.h"
#include "comm/core/operation.h"
#include "comm/core/wait_policy.h"
#include "comm/core/whereabouts.h"
#include "plait/error.h"
#include "plait/tag.h"
#include "plait/trace.h"

namespace plait::comm {

using base::Nanoseconds;

// How a group ends: something went wrong in it, or a rank gave it up, and with it all that was
// split off it.
enum class End { failure, abort };
inline constexpr std::size_t kEnds = 2;

// The error that ended a group. Every rank throws it with these very words.
struct Failure {
  Code code;
  int culprit;
  std::string sentence;
};

// The event that a rank waits for: the chunk with this tag from `peer`, or room for it at `peer`.
struct Awaited {
  int peer;
  Tag tag;
  bool room = false;
};

// True if it is an operator that is multiplying, and waits for no other rank.
inline bool is_multiplying(const Awaited& awaited, int rank) {
  return is_operator(awaited.tag.operation) && awaited.peer == rank;
}

// The answer of awaited() at a moment at which all has come.
inline Awaited nothing_awaited(const Tag& tag) { return {.peer = Error::kNoRank, .tag = tag}; }

inline Failure failure_of(const Error& error) {
  return {.code = error.code(), .culprit = error.culprit(), .sentence = error.what()};
}

// In a catch clause: what the other ranks are told of what was caught on this one in `call`.
Failure failure_of_caught(std::string_view call, int rank);

// The frames up to the last of these, to a process whose kernel here has not taken them.
struct Unsent {
  int process;
  std::uint64_t last;
};

class Executor;
class Patience;

class Group {
 public:
  Group(int rank, int world, WaitPolicy policy)
      : rank_(rank), world_(world), policy_(std::move(policy)) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  virtual ~Group() = default;

  int rank() const { return rank_; }
  int world() const { return world_; }
  const WaitPolicy& policy() const { return policy_; }

  // How long this rank waits from now on. While one thread alone knows of the group.
  void set_timeout(Nanoseconds timeout) { policy_.timeout = timeout; }

  // Likewise how this rank waits, of which it takes polls, spin and yield.
  void set_waits(const WaitPolicy& waits) {
    policy_.polls = waits.polls;
    policy_.spin = waits.spin;
    policy_.yield = waits.yield;
  }

  // True if this process was forked from the rank: it must touch nothing that the ranks share.
  bool in_child() const { return fork_guard_.in_child(); }

  // The trace that records waits; null: there is none.
  Trace* trace() const { return trace_; }
  void set_trace(Trace* trace) { trace_ = trace; }

  // Runs this rank's work in place of its processor (executor.h); null: the processor runs it.
  Executor* executor() const { return executor_; }
  void set_executor(Executor* executor) { executor_ = executor; }

  // This group was split off `parent`, whose ranks `members` it has: an abort there ends it too.
  // Before any other thread knows of the group.
  void descend_from(std::shared_ptr<const Group> parent, std::vector<int> members);

  // Cheap: for every turn of a loop.
  bool failed() const noexcept { return has_ended(End::failure) || parent_aborted(); }

  // Records the failure, unless an earlier one stands, and wakes every rank.
  void fail(const Failure& failure) noexcept;
  Failure failure() const;

  // Any thread may call it at any time: wakes all that wait, in this group at once, and in those
  // that were split off it when they poll next.
  void abort(const Failure& failure) noexcept;

  [[noreturn]] void raise() const;
  void raise_if_failed() const {
    if (failed()) [[unlikely]]
      raise();
  }
  [[noreturn]] void fail_and_raise(const Failure& failure) {
    fail(failure);
    raise();
  }

  // Tells the peers which call this rank is in, and that it is in none any more.
  virtual void announce(const Tag& tag) noexcept = 0;
  virtual void rest() noexcept {}

  // Lists the messages of this rank that peers need, and that move only in further calls, which it
  // may never make.
  virtual std::vector<Unsent> unsent() { return {}; }

  // True if it needs no further call any more, or the group has failed, which the next call says:
  // the result of this one is whole. Fails the group at the end of the patience. Throws when the
  // caller interrupts it.
  virtual bool is_sent(const std::vector<Unsent>& /*unsent*/, Patience& /*patience*/) {
    return true;
  }

  // The end of a blocking call: waits until that is so.
  virtual void finish_sending(const std::vector<Unsent>& /*unsent*/) {}
  void finish_sending() { finish_sending(unsent()); }

  // Announces a collective that this rank has started and last polled at that time, and a product
  // that runs outside all calls of the group, which is announced again now and then.
  virtual void show_started(Nanoseconds /*asked_at*/) noexcept {}
  virtual void show_product() const noexcept {}

  // For a call that ends without hearing from its peers: fails the group where one of them has
  // announced another call under this one's number. If two ranks disagree and both call it at
  // their end, at least one of them sees it. Where announcements can't be seen, nothing is.
  virtual void compare_calls() {}

  // Polls the peers, which takes about 1 µs each: fails the group where a peer has died, or where
  // the one that is waited for has left or is in another call. `ready` is asked once more before a
  // peer that has left is blamed: its last chunk may have come just now. `awaited` is null outside
  // of any call. Asks the caller too whether it wants to be interrupted.
  void examine(const Awaited* awaited, base::FunctionRef<bool()> ready) {
    interrupt_if_asked(awaited);
    examine_peers(awaited, ready);
  }

  // Calls the caller's hook. If it throws, fails the group and rethrows the exception. It is part
  // of examine(); waits that have no use for the rest of that call it alone.
  void interrupt_if_asked(const Awaited* awaited);

  // A hook that an operator's caller gave, while the operator has no loop of its own that calls it:
  // this thread calls it wherever it asks whether it is interrupted. What it throws ends the wait.
  struct PollHook {
    std::string_view call;  // the operator's name
    std::function<void()> hook;
  };
  void set_poll_hook(const PollHook* hook) noexcept;  // null: none

  // The hook has thrown on behalf of this group, perhaps in one that was being split off it.
  void note_interruption(const Awaited* awaited) noexcept;

  // True if the hook has thrown here. What is thrown is then the caller's own, and is not to be put
  // into other words on its way out.
  bool was_interrupted() const noexcept {
    return interrupted_.load(std::memory_order_relaxed);  // set by the very thread that unwinds
  }

  // Publishes, while this rank waits, which rank it waits for, and thereby leads the blame to
  // the rank that is really late. Threads of a rank may wait at once: each keeps its ticket, and
  // republishes with it now and then that it still waits. See PublishedWait.
  static constexpr int kNoTicket = -1;
  virtual int begin_waiting(const Awaited& awaited, int ticket) noexcept = 0;
  virtual void end_waiting(int ticket) noexcept = 0;

  // Shows the peers that this rank waits for `awaited` in `other`, which keeps it from calls of
  // this group; null: no more. By one thread at a time.
  void show_wait_elsewhere(const Group* other, const Awaited* awaited) noexcept;

  // The deadline has passed: fails the group and blames a rank. A rank that waits for no other and
  // makes no progress is itself to blame. Finding the rank to blame takes a while, so `ready` is
  // asked once more: where it says yes, no rank is late, and the call returns.
  virtual void give_up(const Awaited& awaited, base::FunctionRef<bool()> ready) = 0;

  // Sleeps until `ready()` may have become true, at most until `until`.
  virtual void sleep_until(Nanoseconds until, base::FunctionRef<bool()> ready) = 0;

 protected:
  virtual void show_elsewhere(const Elsewhere* /*elsewhere*/) noexcept {}
  virtual void examine_peers(const Awaited* awaited, base::FunctionRef<bool()> ready) = 0;

  // The first record of each kind stands; it may be read once has_ended() is true.
  virtual bool has_ended(End end) const noexcept = 0;
  virtual void end(End end, const Failure& failure) noexcept = 0;
  virtual Failure record_of(End end) const = 0;

  // If ranks have no memory in common for the record: reports the failure to the lowest rank that
  // is there and isn't late. That rank records the first one that it hears of, and tells all, so
  // that ranks that find different failures at once don't throw each its own. True: a record has
  // come. False: this rank is to record the failure, since none below it is there or answers.
  struct Reporting {
    base::FunctionRef<bool(int peer)> is_there;
    base::FunctionRef<void(int peer)> report;
    base::FunctionRef<void()> wait;  // shortly, for what comes
  };
  bool is_recorded_elsewhere(const Failure& failure, const Reporting& reporting) const;

 private:
  // A rank of this group among those of the group that all were split off.
  struct Origin {
    const Group* root;
    int rank;
    bool operator==(const Origin&) const = default;
  };
  Origin origin_of(int rank) const noexcept;
  bool parent_aborted() const noexcept {
    return parent_ != nullptr && (parent_->has_ended(End::abort) || parent_->parent_aborted());
  }
  Failure parents_abort() const;
  void call_poll_hook();

  int rank_;
  int world_;
  WaitPolicy policy_;
  base::ForkGuard fork_guard_;
  Trace* trace_ = nullptr;
  Executor* executor_ = nullptr;
  std::atomic<bool> interrupted_{false};

  // Memory ordering: relaxed. The hook is read by its own thread only, and any other thread finds
  // that it is not the one.
  const PollHook* poll_hook_ = nullptr;
  std::atomic<std::uintptr_t> poll_thread_{0};
  std::shared_ptr<const Group> parent_;
  std::vector<int> members_in_parent_;
};

// While it lives, waits of this thread in the group call the hook, if there is one.
class PollHookInWaits {
 public:
  PollHookInWaits(Group& group, std::string_view call, const std::function<void()>& hook);
  ~PollHookInWaits() { group_.set_poll_hook(nullptr); }
  PollHookInWaits(const PollHookInWaits&) = delete;
  PollHookInWaits& operator=(const PollHookInWaits&) = delete;

 private:
  Group& group_;
  Group::PollHook hook_;
};

// A wait of one thread, known to the peers from the first publish() on.
class PublishedWait {
 public:
  // A wait that blocks its thread is shown in the other groups that the thread uses too, if it goes
  // on for some time.
  enum class Blocks : bool { no, yes };
  explicit PublishedWait(Group& group, Blocks blocks = Blocks::no)
      : group_(group), blocks_(blocks == Blocks::yes) {}
  PublishedWait(const PublishedWait&) = delete;
  PublishedWait& operator=(const PublishedWait&) = delete;
  ~PublishedWait() { end(); }

  void publish(const Awaited& awaited) {
    if (awaited.peer == Error::kNoRank) return end();
    ticket_ = group_.begin_waiting(awaited, ticket_);
    if (blocks_ && ++published_ % kBetweenGroups == 0) [[unlikely]]
      show_elsewhere(&awaited);
  }
  void end() noexcept {
    if (published_ >= kBetweenGroups) show_elsewhere(nullptr);
    published_ = 0;
    if (ticket_ == Group::kNoTicket) return;
    if (!group_.in_child()) group_.end_waiting(ticket_);
    ticket_ = Group::kNoTicket;
  }

 private:
  // They may be many, so it is shown there less often than here.
  static constexpr unsigned kBetweenGroups = 5;
  void show_elsewhere(const Awaited* awaited) noexcept;

  Group& group_;
  bool blocks_;
  int ticket_ = Group::kNoTicket;
  unsigned published_ = 0;
};

// "all_reduce: rank 0 waits for chunk 3 from rank 1": the beginning of most failures' sentences.
std::string describe(const Awaited& awaited, int rank);

// Likewise for a rank that may wait for nothing: "rank 0 polls its peers".
std::string describe_poll(const Awaited* awaited, int rank);

// An error of a new group that is still being made, as the group that it is split off sees it:
// `members` are the new group's ranks there. Where none has another number, it stays as it is.
Error seen_from_parent(const Error& error, const std::vector<int>& members);

// For collective set-up: throws Error{mismatch} where two ranks make different things.
void check_same_purpose(int rank, const std::string& mine, int peer, const std::string& theirs);

}  // namespace plait::comm
