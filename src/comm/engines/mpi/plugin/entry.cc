#include <mpi.h>

#include <map>
#include <memory>
#include <mutex>

#include "base/check.h"
#include "base/clock.h"
#include "comm/core/build_name.h"
#include "comm/core/plugin.h"
#include "comm/engines/mpi/plugin/mpi_world.h"
#include "comm/engines/mpi/plugin/session.h"

namespace plait::comm::mpi {
namespace {

#ifdef OPEN_MPI
constexpr const char* kLibrary = "Open MPI";
#else
constexpr const char* kLibrary = "MPICH";
#endif

// One thread calls it at a time. Never destroyed: they end with MPI.
MpiWorld& world_of(const Processes& processes) {
  static auto& all =
      *std::make_unique<std::map<const Processes*, std::unique_ptr<MpiWorld>>>().release();
  std::unique_ptr<MpiWorld>& found = all[&processes];
  if (found == nullptr) {
    found = std::make_unique<MpiWorld>(processes);
    close_at_the_end([one = found.get()] { one->close(); });
  }
  return *found;
}

std::unique_ptr<Transport> create(const Site& site) {
  static std::mutex connecting;
  const std::unique_lock alone(connecting, std::try_to_lock);
  PLAIT_CHECK(alone.owns_lock(),
              "another thread of this process is connecting through MPI: let one be done before "
              "the next begins, in the same order in all processes");
  const Deadline deadline(site.policy.timeout);
  MeetOptions options = {.timeout = site.policy.timeout,
                         .interrupted =
                             [&] {
                               if (site.policy.interrupted) site.policy.interrupted();
                               if (site.watch) site.watch();
                             },
                         .hosts = site.place.hosts};
  if (site.mpi) {
    options.all_gather = site.all_gather;
    options.job = site.place.job;
  } else if (site.all_gather) {
    site.all_gather("");  // which finds ranks that use another transport
  }
  const Processes& processes = meet_processes(site.mpi, options);
  PLAIT_CHECK(processes.rank == site.place.rank && processes.count == site.place.world,
              "MPI says that this is rank ", processes.rank, " of ", processes.count,
              ", but it was to be rank ", site.place.rank, " of ", site.place.world,
              ": was it started by mpirun or mpiexec of ", kLibrary,
              "? Without MPI, PLAIT_RENDEZVOUS=HOST:PORT says where rank 0 listens");
  return world_of(processes).connect(site.policy, deadline, site.watch);
}

}  // namespace
}  // namespace plait::comm::mpi

extern "C" PLAIT_EXPORT const plait::comm::PluginHead* plait_mpi_plugin() {
  static const plait::comm::Plugin plugin = {
      // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): it ends with a zero
      {.build = plait::comm::build_name().data()},
      plait::comm::mpi::create};
  return &plugin;
}
