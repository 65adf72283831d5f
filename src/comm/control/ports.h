// The ports at which ranks may listen.
#pragma once

#include <optional>

namespace plait::comm::tcp {

struct PortRange {
  int first;
  int last;  // inclusive
};

// PLAIT_PORTS, as 30000-30100; null: any port. Throws Error{invalid_argument} if it makes no sense.
std::optional<PortRange> ports_from_environment();

}  // namespace plait::comm::tcp
