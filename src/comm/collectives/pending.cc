#include "base/check.h"
#include "comm/state.h"
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
    wait();
  } catch (
      const std::exception&) {  // NOLINT(bugprone-empty-catch): the header says that it is lost
  }
}

void Pending::progress() { static_cast<void>(done()); }

bool Pending::done() { return state_->poll(*task_); }

void Pending::wait() { state_->wait(*task_); }

}  // namespace plait
