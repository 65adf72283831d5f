#include "comm/session/thread_guard.h"

#include <sched.h>

#include "base/check.h"

namespace plait::comm {

// A step ends soon: it does what can be done at once.
bool ThreadGuard::begin_late() {
  const auto me = this_thread();
  for (;;) {
    std::uintptr_t found = 0;
    if (user_.compare_exchange_strong(found, me, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
      last_.store(me, std::memory_order_relaxed);
      return true;
    }
    if ((found & kStep) == 0) refuse();
    if (found == (me | kStep)) return false;  // a hook that was called in this thread's step
    membership_.check_not_forked();           // the thread of the step may be the parent's
    ::sched_yield();
  }
}

void ThreadGuard::close() noexcept {
  const auto me = this_thread();
  for (;;) {
    std::uintptr_t found = 0;
    if (user_.compare_exchange_strong(found, me, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
      return;
    }
    if ((found & kStep) == 0 || found == (me | kStep)) return;
    ::sched_yield();
  }
}

// The other thread's call continues, because it began when the communicator was free.
void ThreadGuard::refuse() const {
  membership_.check_not_forked();  // the parent may have been in a call
  base::fail(Code::invalid_argument, "two threads use this communicator (rank ",
             membership_.group().rank(), " of ", membership_.group().world(),
             ") at once: let one call end before the other begins, or give each thread a "
             "communicator of its own (split)");
}

}  // namespace plait::comm
