#include "cli/info/records.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/host.h"
#include "base/parallel.h"
#include "base/text.h"
#include "comm/control/rendezvous.h"
#include "comm/session/gather.h"
#include "comm/session/state.h"
#include "comm/session/transports.h"
#include "plait/collectives.h"
#include "plan/machine.h"
#include "plan/profile.h"
#include "tune/agree.h"
#include "tune/files.h"
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
  std::string text(comm.transport());
  const comm::TransportEntry* const entry = comm::find_transport(text);
  return entry != nullptr && *entry->route != '\0' ? text + ": " + entry->route : text;
}

// The network between several hosts. It is measured and kept as plans of such ranks do it.
Json find_link(Communicator& comm) {
  if (comm.hosts() == 1) return nullptr;
  const plan::TransportFigures network =
      tune::known_network(comm, tune::least(base::thread_count(0), comm),
                          tune::read_files({}, plan::machine_fingerprint()).path);
  return {{"bytes_per_second", network.bytes_per_ns * 1e9},
          {"latency_ns", network.latency},
          {"processor_s_per_gb", network.processor}};
}

}  // namespace

Json meet_ranks() {
  const Place place = place_from_environment();
  PLAIT_CHECK(!place.launcher.empty(),
              "--meet: no launcher has started ranks; try plait run -n 2 -p plait info --meet");
  Communicator comm = Communicator::connect();
  const std::vector<std::string> names = comm::gather_text(this_host(place), comm);
  Json hosts = Json::array();
  Json peers = Json::array();
  for (int rank = 0; rank < comm.world(); ++rank) {
    const std::string& name = names[rank];
    const auto is_same = [&](const Json& host) { return names[host["ranks"][0]] == name; };
    const auto host = std::find_if(hosts.begin(), hosts.end(), is_same);
    if (host == hosts.end()) {
      hosts.push_back({{"name", name_of(name)}, {"ranks", Json::array({rank})}});
    } else {
      (*host)["ranks"].push_back(rank);
    }
    if (rank == comm.rank()) continue;
    peers.push_back({{"rank", rank}, {"host", name_of(name)}, {"route", route_to(comm, rank)}});
  }
  Json link = find_link(comm);
  barrier(comm);  // a rank that has left can't be asked any more how it was reached
  return {{"rank", place.rank},
          {"world", place.world},
          {"launcher", place.launcher},
          {"transport", comm.transport()},
          {"has_secret", !comm::tcp::secret_from_environment().empty()},
          {"hosts", std::move(hosts)},
          {"peers", std::move(peers)},
          {"link", std::move(link)}};
}

std::string show_meeting(const Json& meeting) {
  Json place = meeting;
  place["hosts"] = meeting["hosts"].size();
  const auto transport = meeting["transport"].get<std::string>();
  std::string text = labelled("This is", show_place(place) + ", over " + transport);
  if (comm::meets(transport, comm::Meets::at_address)) {
    text += labelled("Secret", meeting["has_secret"].get<bool>()
                                   ? "PLAIT_SECRET is set"
                                   : "PLAIT_SECRET is not set: the network is trusted");
  }
  const char* label = "Hosts";
  for (const Json& host : meeting["hosts"]) {
    const auto ranks = host["ranks"].get<std::vector<int>>();
    text += labelled(std::exchange(label, ""),
                     fmt::format("{}: {} {}", host["name"].get<std::string>(),
                                 ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, " ")));
  }
  label = "Peers";
  for (const Json& peer : meeting["peers"]) {
    text +=
        labelled(std::exchange(label, ""),
                 fmt::format("rank {} on {}: {}", peer["rank"].get<int>(),
                             peer["host"].get<std::string>(), peer["route"].get<std::string>()));
  }
  const Json& link = meeting["link"];
  if (link.is_null()) return text;
  return text +
         labelled("Link",
                  fmt::format("{:.3g} Gbit/s in both directions at once, latency {}; each GB takes "
                              "{:.2f} s of a processor that multiplies",
                              link["bytes_per_second"].get<double>() * 8e-9,
                              base::show_duration(std::llround(link["latency_ns"].get<double>())),
                              link["processor_s_per_gb"].get<double>()));
}

}  // namespace plait::cli
