#include "trace/stopwatch.h"

#include <algorithm>
#include <limits>

namespace plait::trace {

Anchor drop_anchor(const Stopwatch& stopwatch) {
  // The clock is read between two readings of the counter. An interrupt between them widens the
  // bracket, so the narrowest of several brackets is the best one.
  constexpr int kTries = 8;
  Anchor best{.ticks = 0, .time = 0, .width = std::numeric_limits<base::Ticks>::max()};
  for (int i = 0; i < kTries; ++i) {
    const base::Ticks before = stopwatch.read();
    const base::Nanoseconds time = base::now();
    const base::Ticks width = stopwatch.read() - before;
    if (width < best.width) best = {.ticks = before + width / 2, .time = time, .width = width};
  }
  return best;
}

Scale::Scale(const Anchor& from, const Anchor& to)
    : from_(from),
      ticks_(std::max<std::int64_t>(1, static_cast<std::int64_t>(to.ticks - from.ticks))),
      nanoseconds_(to.time - from.time) {}

base::Nanoseconds Scale::time(base::Ticks ticks) const {
  const auto since = static_cast<std::int64_t>(ticks - from_.ticks);
  // An hour of ticks times an hour of nanoseconds needs 85 bits.
  return from_.time +
         static_cast<base::Nanoseconds>(static_cast<__int128>(since) * nanoseconds_ / ticks_);
}

}  // namespace plait::trace
