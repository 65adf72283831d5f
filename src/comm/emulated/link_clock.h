// When the emulated links of a rank are free again.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "plait/link.h"

namespace plait::comm {

// Refuses a link that no clock could time.
void check_link(const Link& link);

// The link that PLAIT_LINK describes. If the text is invalid, the error names PLAIT_LINK.
std::optional<Link> link_from_environment();

// One clock for each directed link from this rank: all mailboxes and sub-groups that send over a
// link share its clock, as they would share the wire.
class LinkClock {
 public:
  LinkClock(const Link& link, int world) : link_(link), free_at_(world) {}

  const Link& link() const { return link_; }

  // Books a transfer that is handed over now; returns when its last byte arrives.
  base::Nanoseconds book(int peer, std::size_t bytes);

 private:
  Link link_;
  std::vector<std::atomic<base::Nanoseconds>> free_at_;
};

// A sub-group's view: its ranks are others of the whole world.
struct LinkView {
  std::shared_ptr<LinkClock> clock;
  std::vector<int> ranks;  // of the group's members, in the world that the clock was made for

  base::Nanoseconds book(int peer, std::size_t bytes) const {
    return clock->book(ranks[peer], bytes);
  }

  // The view of a group that these members make.
  LinkView of(const std::vector<int>& members) const {
    LinkView part = {.clock = clock, .ranks = {}};
    for (const int member : members) part.ranks.push_back(ranks[member]);
    return part;
  }
};

}  // namespace plait::comm
