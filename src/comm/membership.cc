#include "comm/membership.h"

#include "base/check.h"

namespace plait::comm {

void Membership::check_not_forked() const {
  PLAIT_CHECK(!group_.in_child(), "this process was forked from rank ", group_.rank(),
              ", whose communicators it cannot use");
}

void Membership::check_not_left() const {
  check_not_forked();
  PLAIT_CHECK(!has_left_.load(std::memory_order_relaxed), "this process is about to end, and rank ",
              group_.rank(), " has left its groups");
}

// Memory ordering: relaxed; the calls of this process read it for a refusal, and nothing else.
void Membership::leave() noexcept {
  if (group_.in_child() || has_left_.exchange(true, std::memory_order_relaxed)) return;
  transport_.leave();
}

void Membership::fail_together(const Error& error) const {
  if (group_.was_interrupted()) throw;
  group_.fail_and_raise(failure_of(error));
}

}  // namespace plait::comm
