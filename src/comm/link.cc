#include "plait/link.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/text.h"

namespace plait {

Link parse_link(std::string_view text) {
  Link link = {.bytes_per_second = std::numeric_limits<double>::infinity()};
  const auto parts = base::split(text, ',');
  const auto refuse_unless = [&](bool understood) {
    PLAIT_CHECK(understood, "the link \"", text,
                "\" is not like \"25gbit,5us\": a bandwidth, a latency, or both");
  };
  refuse_unless(parts.size() <= 2);
  bool has_bandwidth = false;
  bool has_latency = false;
  for (const std::string_view part : parts) {
    if (const auto bandwidth = base::parse_bandwidth(part); bandwidth && !has_bandwidth) {
      refuse_unless(*bandwidth >= 1);
      link.bytes_per_second = *bandwidth;
      has_bandwidth = true;
    } else {
      // A bare number could be either, so it is neither.
      const auto latency = base::parse_number(part) ? std::nullopt : base::parse_duration(part);
      refuse_unless(latency.has_value() && !has_latency);
      link.latency_ns = latency.value_or(0);
      has_latency = true;
    }
  }
  return link;
}

std::string describe(const Link& link) {
  const std::string latency = base::show_duration(link.latency_ns);
  if (std::isinf(link.bytes_per_second)) return base::sentence("emulated link, ", latency);
  return base::sentence("emulated link, ", link.bytes_per_second * 8 / 1e9, " Gbit/s, ", latency);
}

}  // namespace plait
