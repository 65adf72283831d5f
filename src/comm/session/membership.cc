#include "comm/session/membership.h"

#include "base/check.h"

namespace plait::comm {

void Membership::refuse_forked() const {
  base::fail(Code::invalid_argument, "this process was forked from rank ", group_.rank(),
             ", whose communicators it cannot use");
}

void Membership::refuse_left() const {
  base::fail(Code::invalid_argument, "this process is about to end, and rank ", group_.rank(),
             " has left its groups");
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
