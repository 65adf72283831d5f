// What plait sets for the MPI library that it starts, so that a link between hosts carries chunks
// both ways at once at its full rate.
#pragma once

namespace plait::comm::mpi {

// Sets variables that the library reads when it starts, except for those that the user has set. To
// be called before MPI_Init_thread.
void apply_library_settings();

}  // namespace plait::comm::mpi
