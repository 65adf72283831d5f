// Processes of any hosts, through UCX: InfiniBand, RoCE, and whatever else UCX knows. What links
// UCX is a plugin, loaded when it is asked for.
#pragma once

#include <memory>

#include "comm/core/transport.h"

namespace plait::comm::ucx {

Availability available();
Availability supports(const Site& site);
std::unique_ptr<Transport> create(const Site& site);

}  // namespace plait::comm::ucx
