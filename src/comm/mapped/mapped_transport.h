// The transport of ranks that share memory, whichever way they came to share it.
#pragma once

#include <memory>

#include "comm/core/transport.h"
#include "comm/mapped/mapped_group.h"

namespace plait::comm {

// The watch over ranks that have no group yet: it asks the caller's hook alone. Empty without one.
Rendezvous::Watch watch_for_interruption(const WaitPolicy& policy);

std::unique_ptr<Transport> make_mapped_transport(std::unique_ptr<Rendezvous> rendezvous,
                                                 const WaitPolicy& policy);

}  // namespace plait::comm
