// UCX within a host, without a network card.
#pragma once

#include "comm/environment.h"

namespace plait {

// Through shared memory. The receiver of a chunk of more than 64 bytes reads it from the sender's
// memory, as with an RDMA card. These transports only claim that a rank's memory is out of reach
// once its connection has failed, which UCX wants to know of them.
inline Environment::Variables through_shared_memory() {
  return {{"UCX_TLS", "posix,cma,self"},
          {"UCX_POSIX_ERROR_HANDLING", "y"},
          {"UCX_CMA_MEMORY_INVALIDATE", "y"},
          {"UCX_RNDV_THRESH", "64"}};
}

}  // namespace plait
