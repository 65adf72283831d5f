// A program's MPI communicator, as mpi4py has it.
#pragma once

#include "native.h"
#include "plait/mpi_ranks.h"

namespace plait::python {

// Describes a communicator of mpi4py to libplait, or of its COMM_WORLD for None. Imports mpi4py,
// and raises what that raises. TypeError for any other object; Error{invalid_argument} for a
// communicator that this process can't use.
MpiRanks mpi_ranks(nb::object comm);

}  // namespace plait::python
