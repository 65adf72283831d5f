// The environment of a rank: its own place, and no other launcher's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plait/communicator.h"

namespace plait::launch {

// The rank's place on its host.
struct LocalPlace {
  int rank;
  int world;
  std::string rendezvous = {};  // the meeting point of hosts; empty: all ranks are on this host
  std::string hosts = {};       // of all ranks, as node1:2,node2:2; empty: it isn't known
  std::string secret = {};      // that they know; empty: what is inherited
};

// "NAME=value" strings: those of `inherited` without any launcher's placement, the place, and
// OMP_NUM_THREADS unless the user has set it.
std::vector<std::string> environment_of(const Place& place, const LocalPlace& local, int threads,
                                        const char* const* inherited);

// True if this variable tells a process its place in a launcher's world. A rank must not see it,
// because it might use it in place of ours.
bool is_placement(std::string_view name);

}  // namespace plait::launch
