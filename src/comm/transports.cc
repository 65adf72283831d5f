#include "comm/transports.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/nearest.h"
#include "comm/mpi/factory.h"
#include "comm/shm/factory.h"
#include "comm/tcp/factory.h"
#include "comm/threads/factory.h"
#include "comm/ucx/factory.h"

namespace plait::comm {
namespace {

// The only place that knows which transports exist. A rank that is alone needs none of the others.
// ucx is last, because tcp serves the same ranks: it is used where it is asked for.
constexpr std::array<TransportEntry, 5> kTransports = {{
    {"threads", "ranks that are threads of one process, or a rank alone", false, threads::available,
     threads::supports, threads::create},
    {"shm", "processes of one host, through shared memory", false, shm::available, shm::supports,
     shm::create},
    {"tcp", "processes of any hosts, over TCP and through shared memory within a host", true,
     tcp::available, tcp::supports, tcp::create},
    {"mpi", "processes of any hosts, through an MPI library found at run time", true,
     mpi::available, mpi::supports, mpi::create},
    {"ucx", "the same as tcp, with chunks through UCX: InfiniBand, RoCE", true, ucx::available,
     ucx::supports, ucx::create},
}};

Availability can_use(const TransportEntry& entry, const Site& site) {
  Availability here = entry.available();
  return here ? entry.supports(site) : here;
}

}  // namespace

std::span<const TransportEntry> transports() { return kTransports; }

void check_transport(const std::string& name) {
  std::vector<std::string> names;
  std::string list;
  for (const TransportEntry& entry : kTransports) {
    names.emplace_back(entry.name);
    list += (list.empty() ? "" : ", ") + names.back();
  }
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return;
  const std::string nearest = base::did_you_mean(name, names);
  base::fail(Code::invalid_argument, "there is no transport ", name,
             nearest.empty() ? "; there are " + list : nearest);
}

bool crosses_hosts(std::string_view name) {
  return std::any_of(kTransports.begin(), kTransports.end(), [&](const TransportEntry& entry) {
    return name == entry.name && entry.crosses_hosts;
  });
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
  PLAIT_CHECK(!refusals.empty(), "there is no transport \"", name,
              "\": it is threads, shm, tcp, mpi or ucx");
  base::fail(Code::invalid_argument, "no transport for rank ", site.place.rank, " of ",
             site.place.world, ": ", refusals);
}

}  // namespace plait::comm
