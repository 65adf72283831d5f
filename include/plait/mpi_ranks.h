// Describes a program's MPI communicator to libplait. C++ programs call from_mpi() in plait/mpi.h;
// this header needs no MPI, and is meant for bindings of other languages.
#pragma once

#include <functional>

#include "plait/communicator.h"
#include "plait/export.h"

namespace plait {

struct MpiRanks {
  int rank = 0;
  int world = 1;
  int handle = 0;  // by MPI_Comm_c2f()

  // Begins an all-gather of `bytes` bytes of each rank, as MPI_Iallgather does, and returns a
  // function that polls it: true when it has ended. `mine` and `all` exist until then.
  using Ended = std::function<bool()>;
  std::function<Ended(const char* mine, char* all, int bytes)> begin_all_gather;
};

// Collective over the communicator; the contract is that of from_mpi().
PLAIT_EXPORT Communicator connect_mpi(const MpiRanks& ranks, CommunicatorOptions options);

}  // namespace plait
