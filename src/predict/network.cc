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
    {.name = "nvlink4",
     .summary = "NVLink 4 through NVSwitch: H100, H200",
     .peak = 450 * kGiga,
     .attained = 0.75,
     .latency_ns = 2000,
     .wiring = Wiring::ports},
    {.name = "nvlink3",
     .summary = "NVLink 3 through NVSwitch: A100",
     .peak = 300 * kGiga,
     .attained = 0.75,
     .latency_ns = 2000,
     .wiring = Wiring::ports},
    {.name = "hccs",
     .summary = "HCCS, one link between every two of eight devices: Ascend 910B",
     .peak = 28 * kGiga,
     .attained = 0.75,
     .latency_ns = 5000,
     .wiring = Wiring::pairs},
    {.name = "pcie5",
     .summary = "PCI Express 5, 16 lanes per device",
     .peak = 64 * kGiga,
     .attained = 0.8,
     .latency_ns = 3000,
     .wiring = Wiring::ports},
    {.name = "pcie4",
     .summary = "PCI Express 4, 16 lanes per device",
     .peak = 32 * kGiga,
     .attained = 0.8,
     .latency_ns = 3000,
     .wiring = Wiring::ports},
    {.name = "400gbit",
     .summary = "one network card per device",
     .peak = 50 * kGiga,
     .attained = 0.9,
     .latency_ns = 10000,
     .wiring = Wiring::ports},
    {.name = "100gbit",
     .summary = "one network card per device",
     .peak = 12.5 * kGiga,
     .attained = 0.9,
     .latency_ns = 10000,
     .wiring = Wiring::ports},
    {.name = "25gbit",
     .summary = "one network card per device",
     .peak = 3.125 * kGiga,
     .attained = 0.9,
     .latency_ns = 20000,
     .wiring = Wiring::ports},
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
  return base::sentence("network: ", network.link.bytes_per_second / kGiga, " GB/s each way ",
                        shared_by(network.wiring), ", ",
                        base::show_duration(network.link.latency_ns));
}

}  // namespace plait::predict
