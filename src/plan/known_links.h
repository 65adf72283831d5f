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

// True if the two are one network at two times. Measurements of one network differ by less.
bool are_alike(const TransportFigures& one, const TransportFigures& other);

// Adds what was measured of a network, and returns the figures that count: those before, if both
// are alike, with the shorter of the two times of a processor, to which other programs only add.
TransportFigures add(KnownLinks& links, const std::string& name, const TransportFigures& measured);

}  // namespace plait::plan
