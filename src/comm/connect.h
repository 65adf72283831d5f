// Communicator::connect() for callers that bring more than a user can.
#pragma once

#include <optional>

#include "comm/wait_policy.h"
#include "plait/communicator.h"

namespace plait::comm {

// What the options say of waiting, and the environment where they don't.
WaitPolicy wait_policy_of(const CommunicatorOptions& options);

// `mpi`: as Site::mpi.
Communicator connect(const CommunicatorOptions& options, std::optional<int> mpi);

}  // namespace plait::comm
