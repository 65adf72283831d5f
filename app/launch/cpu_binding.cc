#include "launch/cpu_binding.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "base/check.h"

namespace plait::launch {
namespace {

// Cores that are left over stay free for the system and helper threads, because a rank with one
// core more would only wait for the others.
//   8 cores, 3 ranks → 0-1, 2-3, 4-5
std::vector<CpuBinding> core_bindings(int ranks, const std::vector<Core>& cores) {
  PLAIT_CHECK(static_cast<std::size_t>(ranks) <= cores.size(), "--bind core: ", ranks,
              " ranks, but only ", cores.size(), cores.size() == 1 ? " core" : " cores",
              " are available; --bind none lets ranks share cores");
  const auto share = static_cast<std::ptrdiff_t>(cores.size()) / ranks;
  std::vector<CpuBinding> bindings;
  for (auto first = cores.begin(); bindings.size() < static_cast<std::size_t>(ranks);
       first += share) {
    bindings.push_back(
        {.cpus = cpus_of({first, first + share}), .threads = static_cast<int>(share)});
  }
  return bindings;
}

std::vector<CpuBinding> numa_bindings(int ranks, const std::vector<Core>& cores) {
  std::map<int, std::vector<Core>> by_node;
  for (const Core& core : cores) by_node[core.node].push_back(core);
  std::vector<std::vector<Core>> nodes;
  nodes.reserve(by_node.size());
  for (auto& [index, members] : by_node) nodes.push_back(std::move(members));
  std::vector<CpuBinding> bindings;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t node = static_cast<std::size_t>(rank) % nodes.size();
    const std::size_t sharing = (ranks - node + nodes.size() - 1) / nodes.size();
    const std::size_t threads = std::max<std::size_t>(1, nodes[node].size() / sharing);
    bindings.push_back({.cpus = cpus_of(nodes[node]), .threads = static_cast<int>(threads)});
  }
  return bindings;
}

// The number of processors to keep busy: a limit of 2.5 supports two threads without stalling one.
int busy(std::size_t cores, std::optional<double> cpu_limit) {
  const int seen = static_cast<int>(cores);
  if (!cpu_limit || *cpu_limit >= seen) return seen;
  return std::max(1, static_cast<int>(*cpu_limit));
}

}  // namespace

Bind default_bind(int cores, int ranks, std::optional<double> cpu_limit) {
  const bool shared = cpu_limit && *cpu_limit < cores;
  return ranks <= cores && !shared ? Bind::core : Bind::none;
}

std::vector<CpuBinding> bindings_for(Bind bind, int ranks, const std::vector<Core>& cores,
                                     std::optional<double> cpu_limit) {
  PLAIT_CHECK(!cores.empty(), "this process may use no core of this host");
  std::vector<CpuBinding> bindings(ranks);
  const int fair = std::max(1, busy(cores.size(), cpu_limit) / ranks);
  if (bind == Bind::core) bindings = core_bindings(ranks, cores);
  if (bind == Bind::numa) bindings = numa_bindings(ranks, cores);
  for (CpuBinding& binding : bindings)
    binding.threads = binding.cpus.empty() ? fair : std::min(fair, binding.threads);
  return bindings;
}

}  // namespace plait::launch
