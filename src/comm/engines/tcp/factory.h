// Processes of any hosts, over plain TCP connections: one between each two ranks.
#pragma once

#include <memory>

#include "comm/core/transport.h"

namespace plait::comm::tcp {

Availability available();
Availability supports(const Site& site);
std::unique_ptr<Transport> create(const Site& site);

}  // namespace plait::comm::tcp
