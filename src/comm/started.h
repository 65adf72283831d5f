// The collectives that threads have started, in whichever communicator: a thread that waits for
// something else advances its own meanwhile (docs/design/0029).
//
// They belong to the thread that has used their communicator last.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "comm/task_queue.h"
#include "comm/thread_guard.h"

namespace plait::comm {

// For the turns of loops that wait: does what can be done now for all that this thread has started,
// unless it is in a call of the same communicator. True: something has moved. An error there stays
// there, for the next call of that communicator; an exception of the caller's hook is passed on.
//
// Simulated ranks share a thread: each advances what is on its own clock.
bool advance_started(const Executor* clock = nullptr);

// True if it may have anything to do. A loop that sleeps wakes up every kNapBeside meanwhile, since
// what comes there wakes no sleeper here.
bool has_started() noexcept;
inline constexpr Nanoseconds kNapBeside = 200 * base::kMicrosecond;
inline Nanoseconds nap_of(Nanoseconds longest) {
  return has_started() ? std::min(longest, kNapBeside) : longest;
}

// The collectives under way in one communicator, and which thread may touch them. It lives as long
// as a thread knows of it.
class StartedTasks : public std::enable_shared_from_this<StartedTasks> {
 public:
  StartedTasks(const Membership& membership, TaskQueue& tasks)
      : guard_(membership), tasks_(&tasks) {}

  ThreadGuard& guard() { return guard_; }

  // At the end of a call, before the guard's: from now on these belong to this thread, if there are
  // any.
  void note_call() noexcept {
    if (has_any() || owner_ != 0) [[unlikely]]
      set_owner();
  }

  // The communicator is being destroyed.
  void close() noexcept;
  // And in a forked child, which has none of the parent's other threads.
  void forget() noexcept { tasks_ = nullptr; }

  enum class Outcome : std::uint8_t { none_left, waits, moved };
  Outcome advance(const Executor* clock);

 private:
  bool has_any() const { return tasks_ != nullptr && !tasks_->empty(); }
  Outcome advance_alone(const Executor* clock);
  void set_owner() noexcept;

  ThreadGuard guard_;

  // The tasks that the guard guards.
  TaskQueue* tasks_;         // null: their communicator has been destroyed
  std::uint64_t owner_ = 0;  // a number that each thread has for itself; 0: none
};

}  // namespace plait::comm
