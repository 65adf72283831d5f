#include <nlohmann/json.hpp>

#include "cli/info/show.h"
#include "plait/version.h"

namespace plait::cli {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Json processor_json(const Findings& findings) {
  Json features = Json::object();
  for (const auto& [name, there] : findings.processor.features) features[name] = there;
  const launch::Topology& topology = findings.topology;
  Json caches = Json::array();
  for (const launch::CacheLevel& cache : topology.caches) {
    caches.push_back({{"name", cache.name},
                      {"bytes", cache.bytes},
                      {"count", cache.count},
                      {"cores_each", cache.cores_each}});
  }
  return {
      {"model", findings.processor.model}, {"packages", topology.packages},
      {"cores", topology.host_cores},      {"cpus", topology.host_cpus},
      {"features", std::move(features)},   {"instruction_set", or_null(findings.instruction_set)},
      {"caches", std::move(caches)}};
}

Json memory_json(const Findings& findings) {
  const measure::Memory& memory = findings.memory;
  Json huge_pages = Json::array();
  for (const measure::HugePages& pages : memory.huge_pages) {
    huge_pages.push_back(
        {{"bytes", pages.bytes}, {"reserved", pages.reserved}, {"free", pages.free}});
  }
  Json nodes = Json::array();
  for (const launch::NumaNode& node : findings.topology.nodes)
    nodes.push_back({{"node", node.index}, {"cores", node.cores}, {"bytes", node.bytes}});
  return {{"bytes", memory.bytes},
          {"available_bytes", memory.available},
          {"page_bytes", memory.page},
          {"huge_pages", std::move(huge_pages)},
          {"transparent_huge_pages", or_null(memory.transparent)},
          {"shared_memory_huge_pages", or_null(memory.shared_transparent)},
          {"numa_nodes", std::move(nodes)}};
}

Json usable_json(const Findings& findings) {
  const auto& cores = findings.topology.cores;
  return {{"cores", cores.size()},
          {"cpus", launch::cpus_of(cores)},
          {"cgroup_cpus", or_null(findings.limits.cpus)},
          {"cgroup_memory_bytes", or_null(findings.limits.memory)}};
}

Json place_json(const Findings& findings) {
  return {{"launcher", or_null(findings.place.launcher)},
          {"rank", findings.place.rank},
          {"world", findings.place.world},
          {"hosts", findings.place.hosts},
          {"problem", or_null(findings.misplaced)}};
}

Json network_json(const NetworkFinding& network) {
  return {{"interface", or_null(network.interface)},
          {"addresses", network.addresses},
          {"rendezvous", or_null(network.rendezvous)},
          {"has_secret", network.has_secret},
          {"problem", or_null(network.problem)}};
}

Json gpus_json(const Findings& findings) {
  Json devices = Json::array();
  for (const overlap::DeviceInfo& gpu : findings.gpus) {
    devices.push_back({{"device", name(Device::cuda(gpu.index))},
                       {"name", gpu.name},
                       {"bytes", gpu.bytes},
                       {"multiprocessors", gpu.multiprocessors},
                       {"compute_capability", {gpu.major, gpu.minor}},
                       {"available", gpu.refusal.empty()},
                       {"refusal", or_null(gpu.refusal)}});
  }
  return {{"refusal", or_null(findings.gpu_refusal)}, {"devices", std::move(devices)}};
}

}  // namespace

Json show_json(const Findings& findings) {
  Json transports = Json::array();
  for (const TransportFinding& transport : findings.transports) {
    transports.push_back({{"name", transport.name},
                          {"summary", transport.summary},
                          {"available", transport.refusal.empty()},
                          {"refusal", or_null(transport.refusal)}});
  }
  Json backends = Json::array();
  for (const BackendFinding& backend : findings.backends) {
    backends.push_back({{"name", backend.name},
                        {"available", !backend.operands.empty()},
                        {"operands", backend.operands},
                        {"refusals", backend.refusals}});
  }
  return {{"plait", kVersion},
          {"host",
           {{"name", findings.host},
            {"system", findings.system},
            {"kernel", findings.kernel},
            {"machine", findings.machine}}},
          {"processor", processor_json(findings)},
          {"memory", memory_json(findings)},
          {"usable", usable_json(findings)},
          {"place", place_json(findings)},
          {"network", network_json(findings.network)},
          {"settings", findings.settings},
          {"unknown_settings", findings.unknown},
          {"refused_settings", findings.refused},
          {"transports", std::move(transports)},
          {"backends", std::move(backends)},
          {"gpus", gpus_json(findings)}};
}

}  // namespace plait::cli
