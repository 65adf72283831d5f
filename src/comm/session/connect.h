// Communicator::connect() for callers inside plait, which can pass more than a user.
#pragma once

#include <optional>

#include "comm/core/wait_policy.h"
#include "plait/communicator.h"

namespace plait::comm {

// The wait policy of the options; what they leave open comes from the environment.
WaitPolicy wait_policy_of(const CommunicatorOptions& options);

// The ranks of a communicator of the program's MPI.
struct MpiProgram {
  int handle;                  // as Site::mpi
  base::Nanoseconds began_at;  // when this rank began to wait for the others
};
Communicator connect(const CommunicatorOptions& options, const std::optional<MpiProgram>& mpi);

}  // namespace plait::comm
