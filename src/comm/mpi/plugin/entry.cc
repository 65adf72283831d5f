#include <mpi.h>

#include <mutex>

#include "base/check.h"
#include "comm/build_name.h"
#include "comm/mpi/plugin/lobby.h"
#include "comm/mpi/plugin/session.h"
#include "comm/plugin.h"

namespace plait::comm::mpi {
namespace {

#ifdef OPEN_MPI
constexpr const char* kLibrary = "Open MPI";
#else
constexpr const char* kLibrary = "MPICH";
#endif

// Never destroyed: it ends with MPI.
Lobby& lobby() {
  static Lobby& one = []() -> Lobby& {
    Lobby& made = *std::make_unique<Lobby>().release();
    close_at_the_end([&made] { made.close(); });
    return made;
  }();
  return one;
}

std::unique_ptr<Transport> create(const Site& site) {
  static std::mutex connecting;
  const std::unique_lock alone(connecting, std::try_to_lock);
  PLAIT_CHECK(alone.owns_lock(),
              "another thread of this process is connecting through MPI: let one be done before "
              "the next begins, in the same order in all processes");
  start_mpi({.timeout = site.policy.timeout, .interrupted = site.policy.interrupted});
  PLAIT_CHECK(process_rank() == site.place.rank && process_count() == site.place.world,
              "MPI says that this is rank ", process_rank(), " of ", process_count(),
              ", but it was to be rank ", site.place.rank, " of ", site.place.world,
              ": was it started by mpirun or mpiexec of ", kLibrary, "?");
  return lobby().connect(site.policy);
}

}  // namespace
}  // namespace plait::comm::mpi

extern "C" PLAIT_EXPORT const plait::comm::Plugin* plait_mpi_plugin() {
  static const plait::comm::Plugin plugin = {
      // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): it ends with a zero
      .build = plait::comm::build_name().data(),
      .create = plait::comm::mpi::create};
  return &plugin;
}
