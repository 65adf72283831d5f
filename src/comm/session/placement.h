// Which ranks are on which hosts.
#pragma once

#include <string>
#include <vector>

namespace plait::comm {

struct Placement {
  int hosts = 1;

  // The number of ranks of each host, if all have the same number, a power of two, in rank order:
  // the sum of a host's parts is a node of every sum over ranks. Otherwise, and where there is one
  // host, 1.
  int ranks_per_host = 1;
};

// `hosts`: of all ranks; an empty one is unknown. A rank that doesn't know its host is on one of
// its own, but where all have one clock.
Placement placement_of(const std::vector<std::string>& hosts, bool shares_clock);

}  // namespace plait::comm
