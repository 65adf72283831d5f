#include "predict/network.h"

#include <array>

#include "base/check.h"
#include "base/text.h"

namespace plait::predict {
namespace {

constexpr double kGiga = 1e9;

// Peaks are those of data sheets, in one direction. `attained` for NVLink is three quarters:
// kernels and copy engines reach that much (ParallelKittens: 74 to 81 %).
constexpr std::array<NamedNetwork, 8> kNetworks = {{
    // name, summary, peak, attained, latency_ns, wiring
    {"nvlink4", "NVLink 4 through NVSwitch: H100, H200", 450 * kGiga, 0.75, 2000, Wiring::ports},
    {"nvlink3", "NVLink 3 through NVSwitch: A100", 300 * kGiga, 0.75, 2000, Wiring::ports},
    {"hccs", "HCCS, one link between every two of eight devices: Ascend 910B", 28 * kGiga, 0.75,
     5000, Wiring::pairs},
    {"pcie5", "PCI Express 5, 16 lanes per device", 64 * kGiga, 0.8, 3000, Wiring::ports},
    {"pcie4", "PCI Express 4, 16 lanes per device", 32 * kGiga, 0.8, 3000, Wiring::ports},
    {"400gbit", "one network card per device", 50 * kGiga, 0.9, 10000, Wiring::ports},
    {"100gbit", "one network card per device", 12.5 * kGiga, 0.9, 10000, Wiring::ports},
    {"25gbit", "one network card per device", 3.125 * kGiga, 0.9, 20000, Wiring::ports},
}};

std::string_view shared_by(Wiring wiring) {
  switch (wiring) {
    case Wiring::pairs:
      return "between every two ranks";
    case Wiring::ports:
      return "out of and into every rank";
    case Wiring::shared:
      return "shared by all ranks";
  }
  return "";
}

}  // namespace

std::span<const NamedNetwork> networks() { return kNetworks; }

Network find_network(std::string_view text) {
  std::string names;
  for (const NamedNetwork& one : kNetworks) {
    if (one.name == text) return one.network();
    names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  try {
    return {.link = parse_link(text), .wiring = Wiring::ports};
  } catch (const Error& error) {
    base::fail(error.code(), error.what(), ", and not one of ", names);
  }
}

std::string describe(const Network& network) {
  std::string text =
      base::sentence("network: ", network.link.bytes_per_second / kGiga, " GB/s each way ",
                     shared_by(network.wiring), ", ", base::show_duration(network.link.latency_ns));
  if (network.processor_ns_per_byte > 0)
    text += base::sentence("; ", network.processor_ns_per_byte,
                           " s of a rank's processor time for each GB that it sends or receives");
  return text;
}

}  // namespace plait::predict
