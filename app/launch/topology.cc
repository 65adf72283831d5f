#include "launch/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <array>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace plait::launch {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using TopologyOwner = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, FreeBitmap>;

TopologyOwner load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) base::fail_errno("cannot read this host's topology");
  TopologyOwner topology(raw);
  if (hwloc_topology_load(raw) != 0) base::fail_errno("cannot read this host's topology");
  return topology;
}

int count(hwloc_topology_t topology, hwloc_obj_type_t type) {
  return std::max(0, hwloc_get_nbobjs_by_type(topology, type));
}

std::vector<int> list(hwloc_const_bitmap_t bitmap) {
  std::vector<int> bits;
  for (int bit = hwloc_bitmap_first(bitmap); bit >= 0; bit = hwloc_bitmap_next(bitmap, bit))
    bits.push_back(bit);
  return bits;
}

// The processors in the affinity mask that taskset, a batch system or an outer launcher has set.
Bitmap usable_cpus(hwloc_topology_t topology) {
  Bitmap usable(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology)));
  Bitmap mine(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(topology, mine.get(), HWLOC_CPUBIND_PROCESS) == 0 &&
      hwloc_bitmap_intersects(usable.get(), mine.get()) != 0)
    hwloc_bitmap_and(usable.get(), usable.get(), mine.get());
  return usable;
}

// Some virtual machines show hardware threads but no cores; then every hardware thread counts as a
// core.
std::vector<Core> usable_cores(hwloc_topology_t topology) {
  const Bitmap usable = usable_cpus(topology);
  const auto type = count(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  std::vector<Core> cores;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr) {
    Bitmap cpus(hwloc_bitmap_alloc());
    hwloc_bitmap_and(cpus.get(), object->cpuset, usable.get());
    if (hwloc_bitmap_iszero(cpus.get()) != 0) continue;
    const int node = object->nodeset == nullptr ? 0 : hwloc_bitmap_first(object->nodeset);
    cores.push_back({.cpus = list(cpus.get()), .node = std::max(0, node)});
  }
  return cores;
}

int cores_inside(hwloc_topology_t topology, hwloc_const_cpuset_t cpus) {
  return std::max(0, hwloc_get_nbobjs_inside_cpuset_by_type(topology, cpus, HWLOC_OBJ_CORE));
}

std::vector<CacheLevel> read_caches(hwloc_topology_t topology) {
  constexpr std::array<std::pair<hwloc_obj_type_t, const char*>, 4> kLevels = {
      {{HWLOC_OBJ_L1CACHE, "L1d"},
       {HWLOC_OBJ_L2CACHE, "L2"},
       {HWLOC_OBJ_L3CACHE, "L3"},
       {HWLOC_OBJ_L4CACHE, "L4"}}};
  std::vector<CacheLevel> caches;
  for (const auto& [type, name] : kLevels) {
    hwloc_obj* first = hwloc_get_obj_by_type(topology, type, 0);
    if (first == nullptr) continue;
    caches.push_back({.name = name,
                      .bytes = static_cast<std::int64_t>(first->attr->cache.size),
                      .count = count(topology, type),
                      .cores_each = cores_inside(topology, first->cpuset)});
  }
  return caches;
}

std::vector<NumaNode> read_nodes(hwloc_topology_t topology) {
  std::vector<NumaNode> nodes;
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    nodes.push_back({.index = static_cast<int>(node->os_index),
                     .cores = cores_inside(topology, node->cpuset),
                     .bytes = static_cast<std::int64_t>(node->attr->numanode.local_memory)});
  }
  return nodes;
}

}  // namespace

Topology read_topology() {
  const TopologyOwner owner = load_topology();
  hwloc_topology* topology = owner.get();
  return {.packages = count(topology, HWLOC_OBJ_PACKAGE),
          .host_cores = count(topology, HWLOC_OBJ_CORE),
          .host_cpus = count(topology, HWLOC_OBJ_PU),
          .cores = usable_cores(topology),
          .caches = read_caches(topology),
          .nodes = read_nodes(topology)};
}

std::vector<int> cpus_of(const std::vector<Core>& cores) {
  std::vector<int> cpus;
  for (const Core& core : cores) cpus.insert(cpus.end(), core.cpus.begin(), core.cpus.end());
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

std::string show_cpus(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(cpus[i]);
    if (last > i) text += '-' + std::to_string(cpus[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace plait::launch
