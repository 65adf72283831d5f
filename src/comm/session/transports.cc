#include "comm/session/transports.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/nearest.h"
#include "comm/engines/mpi/factory.h"
#include "comm/engines/shm/factory.h"
#include "comm/engines/tcp/factory.h"
#include "comm/engines/threads/factory.h"
#include "comm/engines/ucx/factory.h"

namespace plait::comm {
namespace {

// The only place that knows which transports exist. A rank that is alone needs none of the others.
// ucx is last, because tcp serves the same ranks: it is used where it is asked for.
constexpr std::array<TransportEntry, 5> kTransports = {{
    {"threads", "ranks that are threads of one process, or a rank alone", Meets::in_process,
     "the memory of this process", threads::available, threads::supports, threads::create},
    {"shm", "processes of one host, through shared memory", Meets::in_folder,
     "memory of this host that both ranks map", shm::available, shm::supports, shm::create},
    {"tcp", "processes of any hosts, over TCP and through shared memory within a host",
     Meets::at_address, "", tcp::available, tcp::supports, tcp::create},
    {"mpi", "processes of any hosts, through an MPI library found at run time", Meets::by_mpi,
     "messages, whose way the MPI library chooses", mpi::available, mpi::supports, mpi::create},
    {"ucx", "the same as tcp, with chunks through UCX: InfiniBand, RoCE", Meets::at_address, "",
     ucx::available, ucx::supports, ucx::create},
}};

Availability can_use(const TransportEntry& entry, const Site& site) {
  Availability here = entry.available();
  return here ? entry.supports(site) : here;
}

}  // namespace

std::span<const TransportEntry> transports() { return kTransports; }

std::string list_transports() {
  std::string list;
  for (const TransportEntry& entry : kTransports)
    list += std::string(list.empty() ? "" : ", ") + entry.name;
  return list;
}

void check_transport(const std::string& name) {
  if (name.empty() || find_transport(name) != nullptr) return;
  std::vector<std::string> names;
  for (const TransportEntry& entry : kTransports) names.emplace_back(entry.name);
  const std::string nearest = base::did_you_mean(name, names);
  base::fail(Code::invalid_argument, "there is no transport ", name,
             nearest.empty() ? "; there are " + list_transports() : nearest);
}

const TransportEntry* find_transport(std::string_view name) {
  const auto* const found =
      std::find_if(kTransports.begin(), kTransports.end(),
                   [&](const TransportEntry& entry) { return name == entry.name; });
  return found == kTransports.end() ? nullptr : found;
}

std::vector<Candidate> walk_transports(const std::string& name, const Site& site,
                                       Candidates which) {
  std::vector<Candidate> steps;
  bool found = false;
  for (const TransportEntry& entry : kTransports) {
    const bool wanted = name.empty() || name == entry.name;
    if (which == Candidates::until_chosen && (found || !wanted)) continue;
    Availability answer = can_use(entry, site);
    const bool chosen = wanted && answer && !found;
    found = found || chosen;
    steps.push_back(
        {.entry = &entry, .wanted = wanted, .answer = std::move(answer), .chosen = chosen});
  }
  return steps;
}

const TransportEntry& select_transport(const std::string& name, const Site& site) {
  std::string refusals;
  for (const Candidate& step : walk_transports(name, site, Candidates::until_chosen)) {
    if (step.chosen) return *step.entry;
    refusals +=
        base::sentence(refusals.empty() ? "" : "; ", step.entry->name, ": ", step.answer.refusal);
  }
  PLAIT_CHECK(!refusals.empty(), "there is no transport \"", name, "\"; there are ",
              list_transports());
  base::fail(Code::invalid_argument, "no transport for rank ", site.place.rank, " of ",
             site.place.world, ": ", refusals);
}

}  // namespace plait::comm
