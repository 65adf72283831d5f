#include "base/check.h"
#include "comm/session/state.h"
#include "plait/collectives.h"

namespace plait {

Pending::Pending(std::shared_ptr<Task> task, Communicator& comm)
    : task_(std::move(task)), state_(&comm.state()) {
  state_->start(task_);
}

Pending::Pending(Pending&&) noexcept = default;
Pending& Pending::operator=(Pending&& other) noexcept {
  std::swap(task_, other.task_);
  std::swap(state_, other.state_);
  return *this;
}

Pending::~Pending() {
  if (task_ == nullptr) return;
  try {
    if (task_->is_left_by_interruption()) state_->group().note_interruption(nullptr);
    wait();
  } catch (...) {  // NOLINT(bugprone-empty-catch): lost, as the header says
  }
}

void Pending::progress() { static_cast<void>(done()); }

bool Pending::done() {
  check_usable();
  return task_->fate() == Task::Fate::done || state_->poll(*task_);
}

void Pending::wait() {
  check_usable();
  if (task_->fate() != Task::Fate::done) state_->wait(*task_);
}

void Pending::check_usable() const {
  PLAIT_CHECK(task_ != nullptr, "this Pending was moved to another, which has what was started");
  PLAIT_CHECK(task_->fate() != Task::Fate::abandoned, name(task_->tag().operation),
              ": its communicator was destroyed before it was done");
}

}  // namespace plait
