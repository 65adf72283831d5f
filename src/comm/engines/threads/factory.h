// Ranks that are threads of one process.
#pragma once

#include <memory>

#include "comm/core/transport.h"

namespace plait::comm::threads {

Availability available();
Availability supports(const Site& site);

// For a rank that is alone; ranks of several threads come by ThreadGroup.
std::unique_ptr<Transport> create(const Site& site);

}  // namespace plait::comm::threads
