// The processors of this host as far as this process may use them, read with hwloc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plait::cli {

struct Core {
  std::vector<int> cpus;  // its hardware threads, as the system numbers them
  int node = 0;           // the NUMA node it is nearest to
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
  int host_cores = 0;       // of the host, or of the container where it shows no more
  int host_cpus = 0;        // hardware threads
  std::vector<Core> cores;  // those this process may run on, neighbours next to one another
  std::vector<CacheLevel> caches;
  std::vector<NumaNode> nodes;
};

Topology read_topology();

// The hardware threads of these cores, in order.
std::vector<int> cpus_of(const std::vector<Core>& cores);

// {0, 1, 2, 5} → "0-2,5"
std::string show_cpus(const std::vector<int>& cpus);

}  // namespace plait::cli
