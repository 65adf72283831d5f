// An emulated link: chunks arrive when they would have arrived over a real one.
//
//   plait::Link link = plait::parse_link("25gbit,5us");
//   Communicator comm = Communicator::connect({.link = link});    // or PLAIT_LINK=25gbit,5us
//
// A transfer occupies its directed link for bytes/bandwidth and arrives `latency` later; transfers
// of one direction between two ranks queue behind each other, whatever mailbox they belong to. An
// emulated link takes almost no time from a rank that polls while it works, so overlap can be
// measured without noise. A rank that blocks sleeps until shortly (0.15 ms) before the arrival. The
// ranks must be on one host, because arrival times are times of its clock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plait/export.h"

namespace plait {

struct Link {
  double bytes_per_second;      // 1 at least; infinity: no limit
  std::int64_t latency_ns = 0;  // an hour at most

  bool operator==(const Link&) const = default;
};

// "25gbit,5us", "3GB/s", "400mbit,1ms"; refuses anything else with a sentence.
PLAIT_EXPORT Link parse_link(std::string_view text);

// The inverse of parse_link(): "25gbit,5us".
PLAIT_EXPORT std::string name(const Link& link);

// For people: "emulated link, 25 Gbit/s, 5 us".
PLAIT_EXPORT std::string describe(const Link& link);

}  // namespace plait
