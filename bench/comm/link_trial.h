// Tests an emulated link: chunks arrive when they would over a real one, and waiting for them
// leaves the processor free.
#pragma once

#include "report.h"

namespace plait::bench {

enum class Waiting {
  blocked,  // in wait_arrived
  working,  // polling arrived() between tiles of work
};

// Collective, on a communicator with a link: rank 0 sends to rank 1 repeatedly.
LinkTrial try_link(Communicator& comm, std::size_t bytes, Waiting waiting, const Effort& effort);

}  // namespace plait::bench
