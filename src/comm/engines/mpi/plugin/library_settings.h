// Settings for the MPI library that plait starts, so that a link between hosts carries chunks both
// ways at once at its full rate.
#pragma once

namespace plait::comm::mpi {

// Sets variables that the library reads when it starts, except for those that the user has set, and
// for those that would slow down ranks which are all on one host. To be called before
// MPI_Init_thread. `hosts`: the most that the ranks can be on.
void apply_library_settings(int hosts);

}  // namespace plait::comm::mpi
