// Lets plait start MPI, and prints the value that a variable or a parameter of MPI has then.
//
//   mpi_settings_program variable NAME HOSTS     of the environment
//   mpi_settings_program parameter NAME HOSTS    a whole number, as MPI itself tells it
//
// HOSTS is the number of hosts that the launcher is supposed to have told.
#include <mpi.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "plait/communicator.h"

namespace {

std::string parameter(const char* name) {
  int provided = 0;
  int index = 0;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS ||
      MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS)
    return "unknown";
  MPI_T_cvar_handle handle = nullptr;
  int count = 0;
  unsigned value = 0;
  MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count);
  MPI_T_cvar_read(handle, &value);
  MPI_T_cvar_handle_free(&handle);
  MPI_T_finalize();
  return std::to_string(value);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    plait::Place place = plait::place_from_environment();
    place.hosts = std::atoi(argv[3]);
    const plait::Communicator comm =
        plait::Communicator::connect({.transport = "mpi", .place = place});
    if (comm.rank() != 0) return 0;
    const char* value = std::getenv(argv[2]);
    const std::string of_variable = value == nullptr ? "unset" : value;
    std::cout << (argv[1] == std::string("variable") ? of_variable : parameter(argv[2]))
              << std::endl;
  } catch (const plait::Error& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
