// The named networks, with the attained share of their peak.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "simulation/network.h"

namespace plait::predict {

using comm::modelled::Network;
using comm::modelled::Wiring;

struct NamedNetwork {
  std::string_view name;
  std::string_view summary;
  double peak;      // bytes per second, in one direction
  double attained;  // share of the peak
  std::int64_t latency_ns;
  Wiring wiring;

  Network network() const {
    return {.link = {.bytes_per_second = peak * attained, .latency_ns = latency_ns},
            .wiring = wiring};
  }
};

std::span<const NamedNetwork> networks();

// Finds a network by name, or parses a link such as "100gbit,5us": one port per rank, attained in
// full. Error{invalid_argument} for any other text.
Network find_network(std::string_view text);

std::string describe(const Network& network);

}  // namespace plait::predict
