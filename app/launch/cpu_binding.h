// Assigns processors to ranks.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "launch/topology.h"

namespace plait::launch {

enum class Bind {
  core,  // an equal share of whole neighbouring cores for each rank
  numa,  // a NUMA node for each rank in turn; ranks on one node share it
  none,  // placed by the system
};

struct CpuBinding {
  std::vector<int> cpus;  // empty: not bound
  int threads = 1;        // how many the rank can keep busy without taking processors of others
};

// The default: `core`, but not in a container that gets less processor time than it has cores.
// Other processes run on those cores too, and a bound rank could not move away.
Bind default_bind(int cores, int ranks, std::optional<double> cpu_limit);

// Refuses `core` with fewer cores than ranks.
std::vector<CpuBinding> bindings_for(Bind bind, int ranks, const std::vector<Core>& cores,
                                     std::optional<double> cpu_limit);

}  // namespace plait::launch
