// Communicator::connect() for callers that bring more than a user can.
#pragma once

#include <optional>

#include "comm/wait_policy.h"
#include "plait/communicator.h"

namespace plait::comm {

// What the options say of waiting, and the environment where they don't.
WaitPolicy wait_policy_of(const CommunicatorOptions& options);

// The ranks of a communicator of the program's MPI.
struct MpiProgram {
  int handle;                  // as Site::mpi
  base::Nanoseconds began_at;  // when this rank began to wait for the others
};
Communicator connect(const CommunicatorOptions& options, const std::optional<MpiProgram>& mpi);

}  // namespace plait::comm
