// UCX_RNDV_THRESH: the size from which on UCX asks the receiver before it sends a message.
#pragma once

#include <ucp/api/ucp.h>

namespace plait::comm::ucx {

// True if the user has set it, in the environment or in one of UCX's files (ucx.conf).
bool is_threshold_set(const ucp_config_t* config);

}  // namespace plait::comm::ucx
