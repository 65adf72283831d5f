// Ranks that are processes of one host.
#pragma once

#include <memory>

#include "comm/core/transport.h"

namespace plait::comm::shm {

Availability available();
Availability supports(const Site& site);
std::unique_ptr<Transport> create(const Site& site);

}  // namespace plait::comm::shm
