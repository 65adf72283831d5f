#include "overlap/exchange.h"

#include <algorithm>
#include <bit>

namespace plait::overlap {

// Sizes are rounded up to a power of two, so that operators of nearly the same size share one.
MailboxDesc Exchange::mailbox_for(int ways, std::size_t chunk_bytes) {
  constexpr std::size_t kLeast = 4096;
  return {.slots = ways * static_cast<int>(kSlotsPerWay),
          .slot_bytes = std::bit_ceil(std::max(chunk_bytes, kLeast))};
}

void Exchange::between_tiles() {
  constexpr base::Nanoseconds kPollInterval = 10 * base::kMillisecond;
  mailbox().help();
  group().raise_if_failed();
  const base::Nanoseconds now = base::now();
  if (now - polled_at_ < kPollInterval) return;
  polled_at_ = now;
  if (peers().empty()) return;
  comm::Awaited here = room_at(Way::out, peers().front());
  here.peer = rank();
  here.room = false;
  group().examine(&here, [] { return true; });
}

}  // namespace plait::overlap
