#include "cli/as_ranks.h"

#include <sched.h>

#include <algorithm>
#include <csignal>
#include <vector>

#include "base/check.h"
#include "base/cpus.h"
#include "base/env.h"
#include "base/parallel.h"
#include "base/text.h"
#include "cli/options.h"
#include "cli/values.h"
#include "comm/core/wait_policy.h"
#include "comm/emulated/link_clock.h"
#include "comm/session/transports.h"

namespace plait::cli {
namespace {

// Ranks that are processes get their share from the launcher.
int share_of_processors(int ranks) {
  const cpu_set_t cpus = base::allowed_cpus();
  return std::max(1, CPU_COUNT(&cpus) / ranks);
}

bool are_threads(const std::string& transport) {
  if (!transport.empty()) return comm::meets(transport, comm::Meets::in_process);
  // Ranks of a launcher choose their transport themselves.
  return place_from_environment().launcher.empty() &&
         comm::meets(base::env("PLAIT_TRANSPORT").value_or(""), comm::Meets::in_process);
}

}  // namespace

void add_options(Options& options, RankOptions& ranks, const std::string& names,
                 const std::string& threads) {
  options.add(names, "N", ranks.ranks, "number of ranks (default: the launcher's, or 2)");
  options.add("-t,--transport", "NAME", ranks.transport,
              "shm (default), threads, tcp, mpi or ucx; see plait info");
  options.offer(transport_words());
  options.add("--threads", kThreads, ranks.threads,
              "threads of each rank (default: " + threads + ")");
}

void check_started(std::string_view what, int ranks, const std::string& transport) {
  const Place place = place_from_environment();
  if (place.launcher.empty() || are_threads(transport)) return;
  PLAIT_CHECK(place.world == ranks, what, ": ", place.launcher, " has started ",
              base::show_count(place.world, "rank"));
}

int read_ranks(std::string_view option, const std::string& text, const std::string& transport) {
  constexpr std::int64_t kMostRanks = 64;
  if (text.empty()) {
    const Place place = place_from_environment();
    return place.launcher.empty() || are_threads(transport) ? 2 : place.world;
  }
  const auto ranks = static_cast<int>(read_number(option, text, 1, kMostRanks));
  check_started(base::sentence(option, " ", text), ranks, transport);
  return ranks;
}

bool was_told_to_end(int status) { return status == 128 + SIGINT || status == 128 + SIGTERM; }

int status_of_ranks(int status) {
  return status > 128 && status != kReaderGone && !was_told_to_end(status) ? kPeerLost : status;
}

int as_ranks(const RanksRequest& request, Words command,
             base::FunctionRef<int(Communicator&)> body) {
  const Place place = place_from_environment();
  if (are_threads(request.transport)) {
    PLAIT_CHECK(place.world == 1, "--transport threads: ", place.launcher, " has started ",
                place.world, " processes, but ranks of this transport are threads of one process");
    const bool is_said = base::env("OMP_NUM_THREADS").has_value();
    int status = kDone;
    run_in_threads(request.ranks, [&](Communicator& comm) {
      if (!is_said) base::set_thread_count(share_of_processors(request.ranks));
      const int mine = body(comm);
      if (comm.rank() == 0) status = mine;
    });
    return status;
  }
  if (place.launcher.empty()) {
    // The check here reports an error once; otherwise every started rank would report it.
    const std::string transport =
        request.transport.empty() ? base::env("PLAIT_TRANSPORT").value_or("") : request.transport;
    comm::check_transport(transport);
    PLAIT_CHECK(!comm::meets(transport, comm::Meets::by_mpi),
                "mpirun starts ranks of the transport mpi: mpirun -n ", request.ranks, " plait ",
                command[0], " ...");
    PLAIT_CHECK(!comm::crosses_hosts(transport), "the transport ", transport,
                " needs ranks that plait run --hosts, torchrun or another launcher has started");
    comm::link_from_environment();
    comm::wait_policy_from_environment();
    std::vector<std::string> launch = {"-n", std::to_string(request.ranks), "--", "/proc/self/exe"};
    launch.insert(launch.end(), command.begin(), command.end());
    return status_of_ranks(run_for("plait " + command[0], launch));
  }
  // If rank 0 can't print, all ranks get that failure. SIGPIPE would look like the rank's death.
  std::signal(SIGPIPE, SIG_IGN);
  Communicator comm = Communicator::connect({.transport = request.transport});
  return body(comm);
}

}  // namespace plait::cli
