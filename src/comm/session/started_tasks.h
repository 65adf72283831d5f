// The collectives under way in one communicator, and which thread may touch them.
#pragma once

#include "comm/core/started.h"
#include "comm/session/task_queue.h"
#include "comm/session/thread_guard.h"

namespace plait::comm {

class StartedTasks : public Started {
 public:
  StartedTasks(const Membership& membership, TaskQueue& tasks)
      : guard_(membership), tasks_(&tasks) {}

  ThreadGuard& guard() { return guard_; }

  // At the end of a call, before the guard's: from now on these belong to this thread, if there are
  // any.
  void note_call() noexcept {
    if (has_any() || has_owner()) [[unlikely]]
      set_owner(has_any());
  }

  // The communicator is being destroyed.
  void close() noexcept;
  // And in a forked child, which has none of the parent's other threads.
  void forget() noexcept { tasks_ = nullptr; }

  Outcome advance(const Executor* clock) override;
  bool is_in_use_here() const override { return guard_.is_in_use_here(); }

 private:
  bool has_any() const { return tasks_ != nullptr && !tasks_->empty(); }
  Outcome advance_alone(const Executor* clock);

  ThreadGuard guard_;

  // The tasks that the guard guards.
  TaskQueue* tasks_;  // null: their communicator has been destroyed
};

}  // namespace plait::comm
