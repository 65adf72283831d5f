// Which processors each rank gets.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "cli/host/topology.h"

namespace plait::cli {

enum class Bind {
  core,  // an equal share of whole cores, neighbours to one another, for each rank
  numa,  // a NUMA node, round robin; ranks on the same node share it
  none,  // wherever the system puts them
};

struct Seat {
  std::vector<int> cpus;  // empty: not bound
  int threads = 1;        // how many the rank can keep busy without taking another's
};

// What is best where nobody said. Not `core` where the container gets less processor time than it
// sees cores: others run on those cores too, and a bound rank could not step aside.
Bind default_bind(int cores, int ranks, std::optional<double> cpu_limit);

// Refuses `core` with fewer cores than ranks.
std::vector<Seat> seats_for(Bind bind, int ranks, const std::vector<Core>& cores,
                            std::optional<double> cpu_limit);

}  // namespace plait::cli
