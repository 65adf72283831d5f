#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <vector>

#include "base/text.h"
#include "cli/info/show.h"
#include "launch/topology.h"

namespace plait::cli {
namespace {

constexpr std::size_t kColumns = 100;

std::string text_of(const Json& value) { return value.get<std::string>(); }

std::string show_bytes(const Json& bytes) {
  return base::show_bytes(static_cast<double>(bytes.get<std::int64_t>()));
}

std::string show_count(const Json& count, const std::string& noun) {
  return base::show_count(count.get<std::int64_t>(), noun);
}

std::string show_features(const Json& features, bool present) {
  std::string names;
  for (const auto& [name, there] : features.items()) {
    if (there.get<bool>() == present) names += (names.empty() ? "" : " ") + name;
  }
  return names.empty() ? "nothing that plait looks for" : names;
}

std::string show_caches(const Json& caches) {
  std::string text;
  for (const Json& cache : caches) {
    const auto cores = cache["cores_each"].get<int>();
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", text_of(cache["name"]),
                        show_bytes(cache["bytes"]),
                        cores > 1 ? fmt::format("for {} cores", cores) : "per core");
  }
  return text.empty() ? "unknown" : text;
}

std::string show_nodes(const Json& nodes) {
  std::string text;
  for (const Json& node : nodes) {
    text += fmt::format("{}node {}: {}, {}", text.empty() ? "" : "; ", node["node"].get<int>(),
                        show_count(node["cores"], "core"), show_bytes(node["bytes"]));
  }
  return text.empty() ? "unknown" : text;
}

std::string show_huge_pages(const Json& memory) {
  std::string text;
  for (const Json& pages : memory["huge_pages"]) {
    const auto reserved = pages["reserved"].get<std::int64_t>();
    text += fmt::format("{} of {}{}; ", reserved == 0 ? "none" : fmt::to_string(reserved),
                        show_bytes(pages["bytes"]),
                        reserved == 0 ? "" : " (" + pages["free"].dump() + " free)");
  }
  const auto mode = [](const Json& chosen) {
    return chosen.is_null() ? "unavailable" : text_of(chosen);
  };
  return text + fmt::format("transparent: {}; for shared memory: {}",
                            mode(memory["transparent_huge_pages"]),
                            mode(memory["shared_memory_huge_pages"]));
}

std::string show_usable(const Json& usable) {
  const Json& cpus = usable["cgroup_cpus"];
  const Json& memory = usable["cgroup_memory_bytes"];
  std::string limited;
  if (!cpus.is_null()) limited += fmt::format(" {:.3g} cpus", cpus.get<double>());
  if (!memory.is_null()) limited += (cpus.is_null() ? " " : " and ") + show_bytes(memory);
  return fmt::format("{} (cpus {}); {}", show_count(usable["cores"], "core"),
                     launch::show_cpus(usable["cpus"].get<std::vector<int>>()),
                     limited.empty() ? "no cgroup limit on processor time or memory"
                                     : "at most" + limited + " by cgroup");
}

std::string show_network(const Json& network) {
  if (!network["problem"].is_null()) return text_of(network["problem"]);
  const std::string interface = or_empty(network["interface"]);
  const std::string rendezvous = or_empty(network["rendezvous"]);
  return fmt::format("{} of {}; {}; {}",
                     fmt::join(network["addresses"].get<std::vector<std::string>>(), ", "),
                     interface.empty() ? "all interfaces" : interface + " (PLAIT_INTERFACE)",
                     rendezvous.empty() ? "no variable says where rank 0 listens"
                                        : "rank 0 listens at " + rendezvous,
                     network["has_secret"].get<bool>() ? "a secret is set" : "no secret is set");
}

// One line per variable, because a value may contain any separator.
std::string setting_lines(const Json& findings) {
  if (findings["settings"].empty()) return labelled("Settings", "no variable PLAIT_... is set");
  std::string lines;
  for (const auto& [name, value] : findings["settings"].items()) {
    lines += labelled(lines.empty() ? "Settings" : "", fmt::format("{}={}", name, text_of(value)));
    const Json& unknown = findings["unknown_settings"];
    if (unknown.contains(name)) lines += labelled("", "  " + text_of(unknown[name]));
  }
  const std::string refused = text_of(findings["refused_settings"]);
  return refused.empty() ? lines : lines + labelled("", "  refused: " + refused);
}

// The dtypes that the backend multiplies, and why not the others. A reason for all dtypes is given
// once.
std::string show_operands(const Json& backend) {
  std::string text;
  for (const Json& dtype : backend["operands"])
    text += (text.empty() ? "" : " and ") + text_of(dtype);
  for (const auto& [dtype, why] : backend["refusals"].items()) {
    const std::string refusal = text_of(why);
    if (text.find(refusal) != std::string::npos) continue;
    if (!backend["operands"].empty())
      text += fmt::format("; not {}: {}", dtype, refusal);
    else
      text += (text.empty() ? "" : "; ") + refusal;
  }
  return text;
}

std::string show_gpu(const Json& gpu) {
  const std::string refusal = or_empty(gpu["refusal"]);
  return fmt::format("{}, {}, {} multiprocessors, compute capability {}.{}{}{}",
                     text_of(gpu["name"]), show_bytes(gpu["bytes"]), gpu["multiprocessors"].dump(),
                     gpu["compute_capability"][0].dump(), gpu["compute_capability"][1].dump(),
                     refusal.empty() ? "" : ": ", refusal);
}

std::string transport_lines(const Json& transports) {
  std::string lines;
  for (const Json& transport : transports) {
    const bool can = transport["available"].get<bool>();
    lines += labelled_row(lines.empty() ? "Transports" : "", text_of(transport["name"]), can,
                          text_of(transport[can ? "summary" : "refusal"]));
  }
  return lines;
}

std::string backend_lines(const Json& backends) {
  std::string lines;
  for (const Json& backend : backends) {
    lines += labelled_row(lines.empty() ? "Backends" : "", text_of(backend["name"]),
                          backend["available"].get<bool>(), show_operands(backend));
  }
  return lines;
}

std::string gpu_lines(const Json& gpus) {
  std::string lines;
  if (!gpus["refusal"].is_null())
    lines += labelled_row("GPUs", "cuda", false, text_of(gpus["refusal"]));
  for (const Json& gpu : gpus["devices"]) {
    lines += labelled_row(lines.empty() ? "GPUs" : "", text_of(gpu["device"]),
                          gpu["available"].get<bool>(), show_gpu(gpu));
  }
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

std::string labelled_row(std::string_view table, const std::string& name, bool can,
                         std::string_view text) {
  const auto label = fmt::format("{:<12}{:<11}{:<5}", table, name, can ? "yes" : "no");
  return labelled(label, text, label.size());
}

std::string show_place(const Json& place) {
  if (place["launcher"].is_null()) return "no launcher in the environment: a single rank";
  return fmt::format("rank {} of {} on {}, by the variables of {}", place["rank"].get<int>(),
                     place["world"].get<int>(), show_count(place["hosts"], "host"),
                     text_of(place["launcher"]));
}

std::string show_findings(const Json& findings) {
  const Json& host = findings["host"];
  const Json& processor = findings["processor"];
  const Json& memory = findings["memory"];
  const Json& place = findings["place"];
  std::string text = fmt::format("plait {}\n\n", text_of(findings["plait"]));
  text +=
      labelled("Host", fmt::format("{}, {} {}, {}", text_of(host["name"]), text_of(host["system"]),
                                   text_of(host["kernel"]), text_of(host["machine"])));
  text += labelled("Processor", text_of(processor["model"]));
  text += labelled("", fmt::format("{}, {}, {}", show_count(processor["packages"], "package"),
                                   show_count(processor["cores"], "core"),
                                   show_count(processor["cpus"], "hardware thread")));
  text += labelled("  has", show_features(processor["features"], true));
  text += labelled("  lacks", show_features(processor["features"], false));
  const std::string set = or_empty(processor["instruction_set"]);
  if (!set.empty()) text += labelled("  uses", set);
  text += labelled("Caches", show_caches(processor["caches"]));
  text += labelled("NUMA", show_nodes(memory["numa_nodes"]));
  text += labelled(
      "Memory",
      fmt::format("{}, {} available, in pages of {}", show_bytes(memory["bytes"]),
                  show_bytes(memory["available_bytes"]), show_bytes(memory["page_bytes"])));
  text += labelled("Huge pages", show_huge_pages(memory));
  text += labelled("Usable", show_usable(findings["usable"]));
  text +=
      labelled("Place", place["problem"].is_null() ? show_place(place) : text_of(place["problem"]));
  text += labelled("Network", show_network(findings["network"]));
  text += setting_lines(findings);
  text += '\n' + transport_lines(findings["transports"]);
  return text + backend_lines(findings["backends"]) + gpu_lines(findings["gpus"]);
}

}  // namespace plait::cli
