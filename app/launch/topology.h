// The processors of this host that this process may use, read with hwloc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plait::launch {

struct Core {
  std::vector<int> cpus;  // its hardware threads, by the system's numbers
  int node = 0;           // the nearest NUMA node
};

struct CacheLevel {
  std::string name;  // "L2", "L1d"
  std::int64_t bytes = 0;
  int count = 0;
  int cores_each = 0;
};

struct NumaNode {
  int index = 0;
  int cores = 0;
  std::int64_t bytes = 0;
};

struct Topology {
  int packages = 0;
  int host_cores = 0;       // of the host, or of the container if it shows no more
  int host_cpus = 0;        // hardware threads
  std::vector<Core> cores;  // that this process may use; neighbours are next to one another
  std::vector<CacheLevel> caches;
  std::vector<NumaNode> nodes;
};

Topology read_topology();

// The hardware threads of these cores, in order.
std::vector<int> cpus_of(const std::vector<Core>& cores);

// {0, 1, 2, 5} → "0-2,5"
std::string show_cpus(const std::vector<int>& cpus);

}  // namespace plait::launch
