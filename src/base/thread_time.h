// The processor time that a thread has used. It does not grow while the thread waits for a core.
#pragma once

#include <time.h>

#include "base/clock.h"

namespace plait::base {

inline Nanoseconds thread_time() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<Nanoseconds>(time.tv_sec) * kSecond + time.tv_nsec;
}

}  // namespace plait::base
