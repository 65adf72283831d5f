#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>

#include "base/text.h"
#include "cli/info/show.h"
#include "plait/version.h"

namespace plait::cli {
namespace {

constexpr std::size_t kColumns = 100;

std::string show_bytes(std::int64_t bytes) { return base::show_bytes(static_cast<double>(bytes)); }

std::string show_features(const base::Processor& processor, bool present) {
  std::string names;
  for (const auto& [name, there] : processor.features) {
    if (there == present) names += (names.empty() ? "" : " ") + name;
  }
  return names.empty() ? "nothing that plait looks for" : names;
}

std::string show_caches(const launch::Topology& topology) {
  std::string text;
  for (const launch::CacheLevel& cache : topology.caches) {
    const std::string whose =
        cache.cores_each > 1 ? fmt::format("for {} cores", cache.cores_each) : "per core";
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", cache.name, show_bytes(cache.bytes),
                        whose);
  }
  return text.empty() ? "unknown" : text;
}

std::string show_nodes(const launch::Topology& topology) {
  std::string text;
  for (const launch::NumaNode& node : topology.nodes) {
    text += fmt::format("{}node {}: {}, {}", text.empty() ? "" : "; ", node.index,
                        base::show_count(node.cores, "core"), show_bytes(node.bytes));
  }
  return text.empty() ? "unknown" : text;
}

std::string show_huge_pages(const measure::Memory& memory) {
  std::string text;
  for (const measure::HugePages& pages : memory.huge_pages) {
    text += fmt::format(
        "{} of {}{}; ", pages.reserved == 0 ? "none" : fmt::to_string(pages.reserved),
        show_bytes(pages.bytes), pages.reserved == 0 ? "" : fmt::format(" ({} free)", pages.free));
  }
  const auto mode = [](const std::string& chosen) {
    return chosen.empty() ? "unavailable" : chosen;
  };
  return text + fmt::format("transparent: {}; for shared memory: {}", mode(memory.transparent),
                            mode(memory.shared_transparent));
}

std::string show_usable(const Findings& findings) {
  const auto& cores = findings.topology.cores;
  const launch::CgroupLimits& limits = findings.limits;
  std::string limited;
  if (limits.cpus) limited += fmt::format(" {:.3g} cpus", *limits.cpus);
  if (limits.memory) limited += (limits.cpus ? " and " : " ") + show_bytes(*limits.memory);
  return fmt::format("{} (cpus {}); {}", base::show_count(cores.size(), "core"),
                     launch::show_cpus(launch::cpus_of(cores)),
                     limited.empty() ? "no cgroup limit on processor time or memory"
                                     : "at most" + limited + " by cgroup");
}

std::string show_network(const NetworkFinding& network) {
  if (!network.problem.empty()) return network.problem;
  return fmt::format(
      "{} of {}; {}; {}", fmt::join(network.addresses, ", "),
      network.interface.empty() ? "all interfaces" : network.interface + " (PLAIT_INTERFACE)",
      network.rendezvous.empty() ? "no variable says where rank 0 listens"
                                 : "rank 0 listens at " + network.rendezvous,
      network.has_secret ? "a secret is set" : "no secret is set");
}

// One line per variable, because a value may contain any separator.
std::string setting_lines(const Findings& findings) {
  if (findings.settings.empty()) return labelled("Settings", "no variable PLAIT_... is set");
  std::string lines;
  for (const auto& [name, value] : findings.settings) {
    lines += labelled(lines.empty() ? "Settings" : "", fmt::format("{}={}", name, value));
    if (const auto why = findings.unknown.find(name); why != findings.unknown.end())
      lines += labelled("", fmt::format("  {}", why->second));
  }
  if (!findings.refused.empty())
    lines += labelled("", fmt::format("  refused: {}", findings.refused));
  return lines;
}

std::string transport_lines(const std::vector<TransportFinding>& transports) {
  std::string lines;
  for (const TransportFinding& transport : transports) {
    const bool there = transport.refusal.empty();
    const auto label = fmt::format("{:<12}{:<11}{:<5}", lines.empty() ? "Transports" : "",
                                   transport.name, there ? "yes" : "no");
    lines += labelled(label, there ? transport.summary : transport.refusal, label.size());
  }
  return lines;
}

// The dtypes that the backend multiplies, and why not the others. A reason for all dtypes is given
// once.
std::string show_operands(const BackendFinding& backend) {
  std::string text;
  for (const std::string& dtype : backend.operands) text += (text.empty() ? "" : " and ") + dtype;
  for (const auto& [dtype, refusal] : backend.refusals) {
    if (text.find(refusal) != std::string::npos) continue;
    if (!backend.operands.empty())
      text += fmt::format("; not {}: {}", dtype, refusal);
    else
      text += (text.empty() ? "" : "; ") + refusal;
  }
  return text;
}

std::string backend_lines(const std::vector<BackendFinding>& backends) {
  std::string lines;
  for (const BackendFinding& backend : backends) {
    const auto label = fmt::format("{:<12}{:<11}{:<5}", lines.empty() ? "Backends" : "",
                                   backend.name, backend.operands.empty() ? "no" : "yes");
    lines += labelled(label, show_operands(backend), label.size());
  }
  return lines;
}

std::string show_gpu(const overlap::DeviceInfo& gpu) {
  const std::string what = fmt::format("{}, {}, {} multiprocessors, compute capability {}.{}",
                                       gpu.name, base::show_bytes(static_cast<double>(gpu.bytes)),
                                       gpu.multiprocessors, gpu.major, gpu.minor);
  return gpu.refusal.empty() ? what : what + ": " + gpu.refusal;
}

std::string gpu_lines(const Findings& findings) {
  std::string lines;
  const auto add = [&](const std::string& device, bool there, const std::string& text) {
    const auto label =
        fmt::format("{:<12}{:<11}{:<5}", lines.empty() ? "GPUs" : "", device, there ? "yes" : "no");
    lines += labelled(label, text, label.size());
  };
  if (!findings.gpu_refusal.empty()) add("cuda", false, findings.gpu_refusal);
  for (const overlap::DeviceInfo& gpu : findings.gpus)
    add(name(Device::cuda(gpu.index)), gpu.refusal.empty(), show_gpu(gpu));
  return lines;
}

}  // namespace

std::string labelled(std::string_view label, std::string_view text, std::size_t indent) {
  std::string lines;
  std::string line = fmt::format("{:<{}}", label, indent);
  bool begun = false;
  for (const auto word : base::split(text, ' ')) {
    if (begun && line.size() + 1 + word.size() > kColumns) {
      lines += line + '\n';
      line.assign(indent, ' ');
      begun = false;
    }
    if (begun) line += ' ';
    line += word;
    begun = true;
  }
  return lines + line + '\n';
}

std::string show_place(const Place& place) {
  if (place.launcher.empty()) return "no launcher in the environment: a single rank";
  return fmt::format("rank {} of {} on {}, by the variables of {}", place.rank, place.world,
                     base::show_count(place.hosts, "host"), place.launcher);
}

std::string show_text(const Findings& findings) {
  const launch::Topology& topology = findings.topology;
  const measure::Memory& memory = findings.memory;
  std::string text = fmt::format("plait {}\n\n", kVersion);
  text += labelled("Host", fmt::format("{}, {} {}, {}", findings.host, findings.system,
                                       findings.kernel, findings.machine));
  text += labelled("Processor", findings.processor.model);
  text += labelled("", fmt::format("{}, {}, {}", base::show_count(topology.packages, "package"),
                                   base::show_count(topology.host_cores, "core"),
                                   base::show_count(topology.host_cpus, "hardware thread")));
  text += labelled("  has", show_features(findings.processor, true));
  text += labelled("  lacks", show_features(findings.processor, false));
  if (!findings.instruction_set.empty()) text += labelled("  uses", findings.instruction_set);
  text += labelled("Caches", show_caches(topology));
  text += labelled("NUMA", show_nodes(topology));
  text +=
      labelled("Memory", fmt::format("{}, {} available, in pages of {}", show_bytes(memory.bytes),
                                     show_bytes(memory.available), show_bytes(memory.page)));
  text += labelled("Huge pages", show_huge_pages(memory));
  text += labelled("Usable", show_usable(findings));
  text += labelled("Place",
                   findings.misplaced.empty() ? show_place(findings.place) : findings.misplaced);
  text += labelled("Network", show_network(findings.network));
  text += setting_lines(findings);
  text += '\n' + transport_lines(findings.transports);
  return text + backend_lines(findings.backends) + gpu_lines(findings);
}

}  // namespace plait::cli
