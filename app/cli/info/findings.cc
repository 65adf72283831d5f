#include "cli/info/records.h"

#include <sys/utsname.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/env.h"
#include "base/instruction_set.h"
#include "base/processor.h"
#include "comm/control/address.h"
#include "comm/control/rendezvous.h"
#include "comm/session/transports.h"
#include "environment/variables.h"
#include "launch/cgroup.h"
#include "launch/topology.h"
#include "measure/memory.h"
#include "overlap/device.h"
#include "plait/communicator.h"
#include "plait/error.h"
#include "plait/gemm.h"
#include "plait/settings.h"
#include "plait/version.h"

namespace plait::cli {
namespace {

template <class Value>
Json if_known(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

// The instruction set that kernels may use. Null: PLAIT_ISA is refused, which why_refused()
// reports.
Json find_instruction_set() try {
  return name(base::usable_instruction_set());
} catch (const Error&) {
  return {};
}

Json find_processor(const launch::Topology& topology) {
  const base::Processor processor = base::read_processor();
  Json features = Json::object();
  for (const auto& [name, there] : processor.features) features[name] = there;
  Json caches = Json::array();
  for (const launch::CacheLevel& cache : topology.caches) {
    caches.push_back({{"name", cache.name},
                      {"bytes", cache.bytes},
                      {"count", cache.count},
                      {"cores_each", cache.cores_each}});
  }
  return {{"model", processor.model},        {"packages", topology.packages},
          {"cores", topology.host_cores},    {"cpus", topology.host_cpus},
          {"features", std::move(features)}, {"instruction_set", find_instruction_set()},
          {"caches", std::move(caches)}};
}

Json find_memory(const launch::Topology& topology) {
  const measure::Memory memory = measure::read_memory();
  Json huge_pages = Json::array();
  for (const measure::HugePages& pages : memory.huge_pages) {
    huge_pages.push_back(
        {{"bytes", pages.bytes}, {"reserved", pages.reserved}, {"free", pages.free}});
  }
  Json nodes = Json::array();
  for (const launch::NumaNode& node : topology.nodes)
    nodes.push_back({{"node", node.index}, {"cores", node.cores}, {"bytes", node.bytes}});
  return {{"bytes", memory.bytes},
          {"available_bytes", memory.available},
          {"page_bytes", memory.page},
          {"huge_pages", std::move(huge_pages)},
          {"transparent_huge_pages", or_null(memory.transparent)},
          {"shared_memory_huge_pages", or_null(memory.shared_transparent)},
          {"numa_nodes", std::move(nodes)}};
}

// The cores and the memory that this process may use.
Json find_usable(const std::vector<launch::Core>& cores) {
  const launch::CgroupLimits limits = launch::read_cgroup_limits();
  return {{"cores", cores.size()},
          {"cpus", launch::cpus_of(cores)},
          {"cgroup_cpus", if_known(limits.cpus)},
          {"cgroup_memory_bytes", if_known(limits.memory)}};
}

Json find_place() {
  Place place = {.rank = 0, .world = 1};
  Json problem;
  try {
    place = place_from_environment();
  } catch (const Error& error) {
    problem = error.what();
  }
  return {{"launcher", or_null(place.launcher)},
          {"rank", place.rank},
          {"world", place.world},
          {"hosts", place.hosts},
          {"problem", problem}};
}

// Other hosts need to know this of this one. Interface: that PLAIT_INTERFACE names; null: all are
// used. Addresses: in the order in which others try them.
Json find_network() {
  Json network = {{"interface", nullptr},
                  {"addresses", Json::array()},
                  {"rendezvous", nullptr},
                  {"has_secret", false},
                  {"problem", nullptr}};
  try {
    network["interface"] = or_null(base::env("PLAIT_INTERFACE").value_or(""));
    if (const auto place = comm::tcp::rendezvous_from_environment())
      network["rendezvous"] = base::sentence(place->host, " port ", place->port);
    network["addresses"] = comm::tcp::local_hosts("");
    network["has_secret"] = !comm::tcp::secret_from_environment().empty();
  } catch (const Error& error) {
    network["problem"] = error.what();
  }
  return network;
}

// Lists backends in the order in which they are tried for products of bf16, each only once, with
// the dtypes that each multiplies here, and its refusals of the others. None can be chosen if
// PLAIT_ISA is refused.
Json find_backends() try {
  Json backends = Json::array();
  for (const GemmChoice& choice : explain_gemm({.m = 1, .n = 1, .k = 1})) {
    const auto same = [&](const Json& backend) { return backend["name"] == choice.backend; };
    auto backend = std::find_if(backends.begin(), backends.end(), same);
    if (backend == backends.end()) {
      backends.push_back({{"name", choice.backend},
                          {"available", false},
                          {"operands", Json::array()},
                          {"refusals", Json::object()}});
      backend = std::prev(backends.end());
    }
    const std::string operand(name(choice.operand));
    if (choice.refusal.empty()) {
      (*backend)["available"] = true;
      (*backend)["operands"].push_back(operand);
    } else {
      auto refusals = (*backend)["refusals"].get<std::map<std::string, std::string>>();
      refusals[operand] = choice.refusal;
      (*backend)["refusals"] = refusals;  // sorted
    }
  }
  return backends;
} catch (const Error&) {
  return Json::array();
}

// The first error that a program would get that reads the settings, connects and multiplies.
std::string why_refused() {
  try {
    check_environment();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string summary_of(const comm::TransportEntry& entry) {
  std::string summary = entry.summary;
  if (entry.meets != comm::Meets::at_address) return summary;
  return summary + (base::env("PLAIT_SECRET")
                        ? "; each rank proves that it knows PLAIT_SECRET"
                        : "; the network is trusted, because PLAIT_SECRET is not set, except where "
                          "ranks meet through a framework's store");
}

Json find_transports() {
  Json transports = Json::array();
  for (const comm::TransportEntry& entry : comm::transports()) {
    const std::string refusal = entry.available().refusal;
    transports.push_back({{"name", entry.name},
                          {"summary", summary_of(entry)},
                          {"available", refusal.empty()},
                          {"refusal", or_null(refusal)}});
  }
  return transports;
}

Json find_gpus() {
  const auto& found = overlap::load_devices();
  Json devices = Json::array();
  for (const overlap::DeviceInfo& gpu : found.list) {
    devices.push_back({{"device", name(Device::cuda(gpu.index))},
                       {"name", gpu.name},
                       {"bytes", gpu.bytes},
                       {"multiprocessors", gpu.multiprocessors},
                       {"compute_capability", {gpu.major, gpu.minor}},
                       {"available", gpu.refusal.empty()},
                       {"refusal", or_null(gpu.refusal)}});
  }
  return {{"refusal", or_null(found.refusal)}, {"devices", std::move(devices)}};
}

}  // namespace

Json find_out() {
  utsname names = {};
  uname(&names);
  const launch::Topology topology = launch::read_topology();
  const std::map<std::string, std::string> settings = environment::find_variables();
  Json unknown = Json::object();
  for (const auto& [variable, value] : settings) {
    if (const std::string why = environment::why_unknown(variable); !why.empty())
      unknown[variable] = why;
  }
  return {{"plait", kVersion},
          {"host",
           {{"name", names.nodename},
            {"system", names.sysname},
            {"kernel", names.release},
            {"machine", names.machine}}},
          {"processor", find_processor(topology)},
          {"memory", find_memory(topology)},
          {"usable", find_usable(topology.cores)},
          {"place", find_place()},
          {"network", find_network()},
          {"settings", settings},
          {"unknown_settings", std::move(unknown)},
          {"refused_settings", why_refused()},
          {"transports", find_transports()},
          {"backends", find_backends()},
          {"gpus", find_gpus()}};
}

}  // namespace plait::cli
