#include "comm/thread_guard.h"

#include "base/check.h"

namespace plait::comm {

// The other thread's call continues, because it began when the communicator was free.
void ThreadGuard::refuse() const {
  membership_.check_not_forked();  // the parent may have been in a call
  base::fail(Code::invalid_argument, "two threads use this communicator (rank ",
             membership_.group().rank(), " of ", membership_.group().world(),
             ") at once: let one call end before the other begins, or give each thread a "
             "communicator of its own (split)");
}

}  // namespace plait::comm
