#include "comm/emulated/link_clock.h"

#include <algorithm>
#include <cmath>

namespace plait::comm {

// Memory ordering: relaxed. The compare-exchange alone makes bookings of several threads exclusive,
// and nothing else is read because of it.
base::Nanoseconds LinkClock::book(int peer, std::size_t bytes) {
  const auto occupied = static_cast<base::Nanoseconds>(
      std::llround(static_cast<double>(bytes) * 1e9 / link_.bytes_per_second));
  std::atomic<base::Nanoseconds>& free_at = free_at_[peer];
  base::Nanoseconds free = free_at.load(std::memory_order_relaxed);
  for (;;) {
    const base::Nanoseconds end = std::max(free, base::now()) + occupied;
    if (free_at.compare_exchange_weak(free, end, std::memory_order_relaxed))
      return end + link_.latency_ns;
  }
}

}  // namespace plait::comm
