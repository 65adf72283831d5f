// Carries the chunks of one operator: lanes in a mailbox that it shares with others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/core/wait.h"
#include "comm/flow/lanes.h"
#include "plait/mailbox.h"

namespace plait::overlap {

using comm::Way;

// Chunks that may be on their way to a peer before it has released the first: enough that neither
// the link nor the reader runs dry.
inline constexpr std::uint32_t kSlotsPerWay = 4;
inline constexpr std::uint32_t kDepth = 2 * kSlotsPerWay;  // a slot has room for two

class Exchange : public comm::Lanes {
 public:
  // For at most so many ways. Its chunks go through a mailbox that it is told of before they do.
  Exchange(comm::Group& group, int ways)
      : Lanes(group,
              {.ways = ways, .per_lane = kSlotsPerWay, .is_shared = true, .is_traced = true}) {}

  static MailboxDesc mailbox_for(int ways, std::size_t chunk_bytes);

  // Between tiles: moves what the transport can't move alone, and notices lost ranks. While this
  // rank multiplies, no peer is late.
  void between_tiles();

  // Returns when ready() says yes; it is asked again and again, and does what can be done.
  template <class Ready, class AwaitedNow>
  void wait(Ready&& ready, AwaitedNow&& awaited) {
    comm::wait_until(
        group(),
        [&] {
          if (ready()) return true;
          mailbox().help();
          return false;
        },
        [&] { return mailbox().take_due(); }, awaited, &moves());
  }

 private:
  base::Nanoseconds polled_at_ = 0;
};

}  // namespace plait::overlap
