#include <mpi.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "comm/core/build_name.h"
#include "comm/core/deadline.h"
#include "comm/core/plugin.h"
#include "comm/engines/mpi/plugin/mpi_carrier.h"
#include "comm/engines/mpi/plugin/session.h"
#include "comm/engines/tcp/tcp_transport.h"

namespace plait::comm::mpi {
namespace {

#ifdef OPEN_MPI
constexpr const char* kLibrary = "Open MPI";
#else
constexpr const char* kLibrary = "MPICH";
#endif

MeetOptions options_of(const Site& site) {
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
  }
  return options;
}

// Processes may have failed in different calls, so each proposes a tag, and the highest is new to
// all.
std::unique_ptr<tcp::Carrier> make_carrier(Processes& processes, tcp::TcpGroup& all) {
  int tag = 0;
  std::vector<std::string> records;
  for (const std::string& text :
       all.all_gather(base::sentence(processes.next_tag, ' ', LocalProcesses::record()))) {
    const std::size_t blank = std::min(text.find(' '), text.size() - 1);
    tag = std::max(tag, static_cast<int>(base::parse_int(text.substr(0, blank)).value_or(0)));
    records.push_back(text.substr(blank + 1));
  }
  PLAIT_CHECK(tag <= highest_tag(), "MPI has ", highest_tag(),
              " tags, and each was used for a communicator of these processes");
  processes.next_tag = tag + 1;
  watch_at_the_end(processes, records);
  return std::make_unique<MpiCarrier>(
      MpiCarrier::Comms{.frames = processes.comm_dups[0], .payloads = processes.comm_dups[1]}, tag,
      all.rank(), processes.local_processes);
}

// MPI has its own way to bring processes together. Then they meet as those of tcp do.
std::unique_ptr<Transport> create(const Site& site) {
  static std::mutex connecting;
  const std::unique_lock alone(connecting, std::try_to_lock);
  PLAIT_CHECK(alone.owns_lock(),
              "another thread of this process is connecting through MPI: let one be done before "
              "the next begins, in the same order in all processes");
  const Deadline deadline(site.policy.timeout);
  Processes& processes = meet_processes(site.mpi, options_of(site));
  PLAIT_CHECK(processes.rank == site.place.rank && processes.count == site.place.world,
              "MPI says that this is rank ", processes.rank, " of ", processes.count,
              ", but it was to be rank ", site.place.rank, " of ", site.place.world,
              ": was it started by mpirun or mpiexec of ", kLibrary,
              "? Without MPI, PLAIT_RENDEZVOUS=HOST:PORT says where rank 0 listens");
  Site over_tcp = site;
  // This process may have been stopped meanwhile, which doesn't count.
  over_tcp.policy.timeout =
      std::max(deadline.at() - base::now(), std::min(site.policy.timeout, base::kSecond));
  if (!site.all_gather) over_tcp.meeting_point = processes.meeting_point;
  return tcp::create(over_tcp, [&](tcp::TcpGroup& all) { return make_carrier(processes, all); });
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
