// The other ranks, seen from this one: whether they are alive, what they are doing, and how to tell
// them that something failed.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/process.h"
#include "comm/wait_policy.h"
#include "plait/error.h"
#include "plait/tag.h"
#include "plait/trace.h"

namespace plait::comm {

using base::Nanoseconds;

// What ended a group. Every rank throws it with these very words.
struct Failure {
  Code code;
  int culprit;
  std::string sentence;
};

// What a rank waits for: the chunk with this tag from `peer`, or room for it at `peer`.
struct Awaited {
  int peer;
  Tag tag;
  bool room = false;
};

inline Failure failure_of(const Error& error) {
  return {.code = error.code(), .culprit = error.culprit(), .sentence = error.what()};
}

class Group {
 public:
  Group(int rank, int world, const WaitPolicy& policy)
      : rank_(rank), world_(world), policy_(policy) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  virtual ~Group() = default;

  int rank() const { return rank_; }
  int world() const { return world_; }
  const WaitPolicy& policy() const { return policy_; }

  // Whether this process was forked from the rank: it must touch nothing that the ranks share.
  bool in_child() const { return fork_guard_.in_child(); }

  // Where waits are recorded; null: nowhere.
  Trace* trace() const { return trace_; }
  void set_trace(Trace* trace) { trace_ = trace; }

  // Cheap: for every turn of a loop.
  virtual bool failed() const noexcept = 0;

  // Records the failure, unless an earlier one stands, and wakes every rank.
  virtual void fail(const Failure& failure) noexcept = 0;
  virtual Failure failure() const = 0;

  [[noreturn]] void raise() const;
  void raise_if_failed() const {
    if (failed()) [[unlikely]]
      raise();
  }
  [[noreturn]] void fail_and_raise(const Failure& failure) {
    fail(failure);
    raise();
  }

  // Tells the peers which call this rank is in.
  virtual void announce(const Tag& tag) noexcept = 0;

  // A careful look, about 1 µs a peer: fails the group where a peer has died, or where the one that
  // is waited for has left or is in another call. `ready` is asked once more before a peer that has
  // left is blamed: its last chunk may have come just now. `awaited` is null when nothing is.
  virtual void examine(const Awaited* awaited, base::FunctionRef<bool()> ready) = 0;

  // Makes known, while this rank waits, for whom: so that the one who is really late gets the
  // blame.
  virtual void begin_waiting(const Awaited& awaited) noexcept = 0;
  virtual void end_waiting() noexcept = 0;

  // The deadline has passed: fails the group, and blames.
  [[noreturn]] virtual void give_up(const Awaited& awaited) = 0;

  // Sleeps until `ready()` may have become true, at most until `until`.
  virtual void doze(Nanoseconds until, base::FunctionRef<bool()> ready) = 0;

 private:
  int rank_;
  int world_;
  WaitPolicy policy_;
  base::ForkGuard fork_guard_;
  Trace* trace_ = nullptr;
};

// "all_reduce: rank 0 waits for chunk 3 from rank 1": the beginning of most failures' sentences.
std::string describe(const Awaited& awaited, int rank);

// An error of a new group that is still being made, as the group that it is split off sees it:
// `members` are the new group's ranks there.
Error seen_from_parent(const Error& error, const std::vector<int>& members);

// For collective set-up: throws Error{mismatch} where two ranks make different things.
void check_same_purpose(int rank, const std::string& mine, int peer, const std::string& theirs);

}  // namespace plait::comm
