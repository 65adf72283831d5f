// Processes of any hosts, by an MPI library. What links to MPI is a plugin, loaded when it is asked
// for.
#pragma once

#include <memory>

#include "comm/core/transport.h"

namespace plait::comm::mpi {

Availability available();
Availability supports(const Site& site);
std::unique_ptr<Transport> create(const Site& site);

}  // namespace plait::comm::mpi
