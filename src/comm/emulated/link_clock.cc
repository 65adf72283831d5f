#include "comm/emulated/link_clock.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/env.h"

namespace plait::comm {
namespace {

// An hour's latency is no link, and a queue of a year never ends: with both, every arrival and the
// patience that begins there still fit the clock.
constexpr base::Nanoseconds kMostLatency = 3600 * base::kSecond;
constexpr base::Nanoseconds kLongestQueue = 365 * 24 * 3600 * base::kSecond;

}  // namespace

void check_link(const Link& link) {
  PLAIT_CHECK(link.bytes_per_second >= 1 && link.latency_ns >= 0 && link.latency_ns <= kMostLatency,
              "connect: a link of ", link.bytes_per_second, " bytes/s and ", link.latency_ns,
              " ns; it takes 1 byte/s at least, and an hour's latency at most");
}

std::optional<Link> link_from_environment() {
  const auto text = base::env("PLAIT_LINK");
  if (!text) return std::nullopt;
  try {
    const Link link = parse_link(*text);
    check_link(link);
    return link;
  } catch (const Error& error) {
    base::fail(error.code(), "PLAIT_LINK: ", error.what());
  }
}

// Memory ordering: relaxed. The compare-exchange alone makes bookings of several threads exclusive,
// and nothing else is read because of it.
base::Nanoseconds LinkClock::book(int peer, std::size_t bytes) {
  const double lasts = static_cast<double>(bytes) * 1e9 / link_.bytes_per_second;
  const auto occupied = static_cast<base::Nanoseconds>(
      std::llround(std::min(lasts, static_cast<double>(kLongestQueue))));
  std::atomic<base::Nanoseconds>& free_at = free_at_[peer];
  base::Nanoseconds free = free_at.load(std::memory_order_relaxed);
  for (;;) {
    const base::Nanoseconds now = base::now();
    const base::Nanoseconds end = std::min(std::max(free, now) + occupied, now + kLongestQueue);
    if (free_at.compare_exchange_weak(free, end, std::memory_order_relaxed))
      return end + link_.latency_ns;
  }
}

}  // namespace plait::comm
