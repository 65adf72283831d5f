#include "cli/info/meet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/host.h"
#include "base/parallel.h"
#include "base/text.h"
#include "cli/info/show.h"
#include "comm/gather.h"
#include "comm/state.h"
#include "comm/tcp/rendezvous.h"
#include "plait/collectives.h"
#include "tune/agree.h"
#include "tune/network.h"

namespace plait::cli {
namespace {

// Names of hosts may be equal, identifiers are not. Without one, a rank is on a host of its own.
// PLAIT_HOST stands for a host of its own too.
std::string this_host(const Place& place) {
  utsname names = {};
  uname(&names);
  const std::string id = base::host_id();
  return (id.empty() ? std::to_string(place.rank) : id) + '/' + place.host + '\n' +
         (place.host.empty() ? std::string(names.nodename) : place.host);
}

std::string name_of(const std::string& host) { return host.substr(host.find('\n') + 1); }

std::string route_to(const Communicator& comm, int peer) {
  std::string told = comm.state().route_to(peer);
  if (!told.empty()) return told;
  if (comm.transport() == "shm") return "shm: memory of this host that both ranks map";
  if (comm.transport() == "threads") return "threads: the memory of this process";
  if (comm.transport() == "mpi") return "mpi: messages, whose way the MPI library chooses";
  return std::string(comm.transport());
}

nlohmann::ordered_json show_link(const std::optional<plan::TransportFigures>& network) {
  if (!network) return nullptr;
  return {{"bytes_per_second", network->bytes_per_ns * 1e9},
          {"latency_ns", network->latency},
          {"processor_s_per_gb", network->processor}};
}

}  // namespace

RanksFinding meet_ranks() {
  const Place place = place_from_environment();
  PLAIT_CHECK(!place.launcher.empty(),
              "--meet: no launcher has started ranks; try plait run -n 2 -p plait info --meet");
  Communicator comm = Communicator::connect();
  const std::vector<std::string> hosts = comm::gather_text(this_host(place), comm);
  RanksFinding finding = {.place = place,
                          .transport = std::string(comm.transport()),
                          .has_secret = !comm::tcp::secret_from_environment().empty()};
  for (int rank = 0; rank < comm.world(); ++rank) {
    const auto first = std::find(hosts.begin(), hosts.end(), hosts[rank]);
    if (first - hosts.begin() == rank) finding.hosts.push_back({.name = name_of(*first)});
    const auto owner =
        std::find_if(finding.hosts.begin(), finding.hosts.end(), [&](const HostFinding& host) {
          return hosts[host.ranks.empty() ? rank : host.ranks.front()] == hosts[rank];
        });
    owner->ranks.push_back(rank);
    if (rank == comm.rank()) continue;
    finding.peers.push_back(
        {.rank = rank, .host = name_of(hosts[rank]), .route = route_to(comm, rank)});
  }
  if (comm.hosts() > 1)
    finding.network = tune::measure_network(comm, tune::least(base::thread_count(0), comm));
  barrier(comm);  // a rank that has left can't be asked any more how it was reached
  return finding;
}

std::string show_text(const RanksFinding& finding) {
  Place place = finding.place;
  place.hosts = static_cast<int>(finding.hosts.size());
  std::string text = labelled("This is", show_place(place) + ", over " + finding.transport);
  if (finding.transport == "tcp" || finding.transport == "ucx")
    text +=
        labelled("Secret", finding.has_secret ? "PLAIT_SECRET is set"
                                              : "PLAIT_SECRET is not set: the network is trusted");
  for (const HostFinding& host : finding.hosts) {
    text += labelled(&host == &finding.hosts.front() ? "Hosts" : "",
                     fmt::format("{}: {} {}", host.name, host.ranks.size() == 1 ? "rank" : "ranks",
                                 fmt::join(host.ranks, " ")));
  }
  for (const PeerFinding& peer : finding.peers) {
    text += labelled(&peer == &finding.peers.front() ? "Peers" : "",
                     fmt::format("rank {} on {}: {}", peer.rank, peer.host, peer.route));
  }
  if (finding.network) {
    text += labelled(
        "Link", fmt::format("{:.3g} Gbit/s in both directions at once, latency {}; each GB takes "
                            "{:.2f} s of a processor that multiplies",
                            finding.network->bytes_per_ns * 8,
                            base::show_duration(std::llround(finding.network->latency)),
                            finding.network->processor));
  }
  return text;
}

nlohmann::ordered_json show_json(const RanksFinding& finding) {
  using Json = nlohmann::ordered_json;
  Json hosts = Json::array();
  for (const HostFinding& host : finding.hosts)
    hosts.push_back({{"name", host.name}, {"ranks", host.ranks}});
  Json peers = Json::array();
  for (const PeerFinding& peer : finding.peers)
    peers.push_back({{"rank", peer.rank}, {"host", peer.host}, {"route", peer.route}});
  return {{"rank", finding.place.rank},         {"world", finding.place.world},
          {"launcher", finding.place.launcher}, {"transport", finding.transport},
          {"has_secret", finding.has_secret},   {"hosts", std::move(hosts)},
          {"peers", std::move(peers)},          {"link", show_link(finding.network)}};
}

}  // namespace plait::cli
