// Time in plait is nanoseconds of the host's monotonic clock, which all processes of a host share.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>
#include <thread>

namespace plait::base {

using Nanoseconds = std::int64_t;

inline constexpr Nanoseconds kMicrosecond = 1000;
inline constexpr Nanoseconds kMillisecond = 1000 * kMicrosecond;
inline constexpr Nanoseconds kSecond = 1000 * kMillisecond;

inline Nanoseconds now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The processor time that this thread has used. It does not grow while the thread waits for a core.
inline Nanoseconds thread_time() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<Nanoseconds>(time.tv_sec) * kSecond + time.tv_nsec;
}

// Returns some 0.1 ms after `time` where the processor is free.
inline void sleep_until(Nanoseconds time) {
  std::this_thread::sleep_until(
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(time)));
}

}  // namespace plait::base
