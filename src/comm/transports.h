// The transports that this build knows, best first.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "comm/transport.h"

namespace plait::comm {

struct TransportEntry {
  const char* name;
  const char* summary;
  Availability (*available)();                             // on this machine at all?
  Availability (*supports)(const Site& site);              // for these ranks?
  std::unique_ptr<Transport> (*create)(const Site& site);  // collective
};

std::span<const TransportEntry> transports();

// The one called `name`, or, when that is empty, the best that supports the site. Refuses with the
// names that exist, or with every transport's own refusal.
const TransportEntry& select_transport(const std::string& name, const Site& site);

}  // namespace plait::comm
