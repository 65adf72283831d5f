// Which ranks are on which hosts.
#pragma once

#include <string>
#include <vector>

namespace plait::comm {

// How many ranks each host has, where all have as many, a power of two of them, in rank order; then
// the sum of a host's parts is a node of every sum over ranks. Otherwise, and where there is one
// host, 1. `hosts`: of all ranks; an empty one is unknown.
int ranks_per_host(const std::vector<std::string>& hosts);

}  // namespace plait::comm
