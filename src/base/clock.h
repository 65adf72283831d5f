// Time in plait is nanoseconds of the host's monotonic clock, which all processes of a host share.
#pragma once

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

// Returns some 0.1 ms after `time` where the processor is free.
inline void sleep_until(Nanoseconds time) {
  std::this_thread::sleep_until(
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(time)));
}

}  // namespace plait::base
