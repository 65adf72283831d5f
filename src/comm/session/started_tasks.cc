#include "comm/session/started_tasks.h"

namespace plait::comm {

Started::Outcome StartedTasks::advance(const Executor* clock) {
  if (!guard_.begin_step()) return Outcome::waits;
  struct Step {
    ThreadGuard& guard;
    ~Step() { guard.end(); }
  };
  const Step step{guard_};
  return advance_alone(clock);
}

Started::Outcome StartedTasks::advance_alone(const Executor* clock) {
  if (tasks_ == nullptr || !is_owned_here()) return Outcome::none_left;
  if (tasks_->clock() != clock) return Outcome::waits;
  const bool moved = tasks_->advance_beside();
  if (tasks_->can_advance()) return moved ? Outcome::moved : Outcome::waits;
  disown();
  return Outcome::none_left;
}

void StartedTasks::close() noexcept {
  guard_.close();
  tasks_ = nullptr;
  forget_here();
  guard_.end();
}

}  // namespace plait::comm
