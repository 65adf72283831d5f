// Networks that were measured before, stored as text beside the machine's profile:
//
//   plait links 1
//   2 ranks on 2 hosts, tcp: 10.0.0.1 to 10.0.0.2 | 41000 | 1.17 | 0.41
//   3 ranks on 3 hosts, tcp: 10.0.0.1 to 10.0.0.2, 10.0.0.3 | 52000 | 1.16 | 0.41
//
// One line per network: its ends, the latency in ns, bytes per ns, and ns of a processor for
// each byte.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plan/profile.h"

namespace plait::plan {

using KnownLinks = std::map<std::string, TransportFigures>;  // by its text, without a name

// The path of the file that belongs to a cache.
std::string links_path(const std::string& cache_path);

// Lines that can't be read are left out: they are measured again.
KnownLinks parse_links(std::string_view text);
std::string text_of(const KnownLinks& links);

// The ends of the routes to other hosts, each once: "tcp: 10.0.0.1 (v0) to 10.0.0.2, 10.0.0.3".
// Without routes in shared memory, and without what follows a semicolon, which explains them.
std::string ends_of(const std::vector<std::string>& routes);

// A network as it was measured. Other programs that disturb the measurement make single transfers
// differ: `rate_spread` and `latency_spread` say how many times as long as a fast one a slow one
// took, without the extreme ones.
struct MeasuredLink {
  TransportFigures figures;
  double rate_spread = 1;
  double latency_spread = 1;
  bool has_processor = true;  // false: its time could not be measured, and is a usual one
};

// Adds what was measured of a network, and returns the figures that count. The rate and the latency
// are each what they were before, unless the network is clearly faster now, or slower, by more than
// the disturbance of this measurement explains. The shorter of two times of a processor counts,
// unless this measurement was disturbed; after a change of the rate, the new one.
TransportFigures add(KnownLinks& links, const std::string& name, const MeasuredLink& measured);

}  // namespace plait::plan
