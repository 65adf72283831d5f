#include "comm/control/ports.h"

#include "base/check.h"
#include "base/env.h"
#include "base/text.h"

namespace plait::comm::tcp {

std::optional<PortRange> ports_from_environment() {
  const auto text = base::env("PLAIT_PORTS");
  if (!text) return std::nullopt;
  const auto words = base::split(*text, '-');
  const auto first = words.size() == 2 ? base::parse_int(words[0]) : std::nullopt;
  const auto last = words.size() == 2 ? base::parse_int(words[1]) : std::nullopt;
  PLAIT_CHECK(first && last && *first >= 1 && *first <= *last && *last <= 65535,
              "PLAIT_PORTS=", *text, " is not a range of ports, such as 30000-30100");
  return PortRange{.first = static_cast<int>(*first), .last = static_cast<int>(*last)};
}

}  // namespace plait::comm::tcp
