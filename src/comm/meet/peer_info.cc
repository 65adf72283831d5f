#include "comm/meet/peer_info.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/cpus.h"
#include "base/env.h"
#include "base/text.h"
#include "comm/control/address.h"
#include "comm/control/rendezvous.h"
#include "comm/meet/transport_check.h"

namespace plait::comm::tcp {

using base::sentence;

namespace {

// The families of the addresses by which other hosts can reach a rank.
struct Families {
  bool has_four = false;
  bool has_six = false;
};

Families families_of(const PeerInfo& info) {
  Families families;
  for (const std::string_view host : base::split(info.hosts, ',')) {
    for (const Address& one : read_addresses(std::string(host), 0)) {
      if (one.is_loopback()) continue;
      (one.family() == AF_INET ? families.has_four : families.has_six) = true;
    }
  }
  return families;
}

std::string chosen_by(const PeerInfo& info) {
  return info.has_interface() ? " (PLAIT_INTERFACE=" + info.interface + ')' : "";
}

}  // namespace

Identity identity_of(const Site& site) {
  Identity self = {.rank = site.place.rank,
                   .world = site.place.world,
                   .job = site.place.job,
                   .key = secret_from_environment()};
  std::replace(self.job.begin(), self.job.end(), '\n', ' ');
  return self;
}

PeerInfo info_of(const Site& site, int port) {
  PeerInfo info =
      info_of_this_process(port, site.all_gather ? base::env("MASTER_ADDR").value_or("") : "");
  if (!site.transport.empty()) info.transport = site.transport;
  return info;
}

bool is_same_host(const PeerInfo& one, const PeerInfo& other) {
  return one.host == other.host && one.host != kUnknown;
}

bool is_same_process(const PeerInfo& one, const PeerInfo& other) {
  return one.host == other.host && one.name == other.name && one.pid == other.pid;
}

std::optional<Error> find_difference(int rank, const PeerInfo& info, int me, const PeerInfo& mine) {
  if (info.build != mine.build) {
    return Error(Code::mismatch,
                 sentence("rank ", rank, " runs plait ", info.build, ", rank ", me, " plait ",
                          mine.build, ": all ranks must run the same build"),
                 rank);
  }
  if (info.transport == mine.transport) return std::nullopt;
  return transports_differ(rank, info.transport, me, mine.transport);
}

std::optional<Error> find_families_apart(const std::vector<PeerInfo>& infos) {
  const auto has_interface = [](const PeerInfo& info) { return info.has_interface(); };
  if (std::none_of(infos.begin(), infos.end(), has_interface)) return std::nullopt;
  std::vector<int> with_four;
  std::vector<int> with_six;
  for (int rank = 0; rank < static_cast<int>(infos.size()); ++rank) {
    const Families families = families_of(infos[rank]);
    if (families.has_four != families.has_six)
      (families.has_four ? with_four : with_six).push_back(rank);
  }
  for (const int four : with_four) {
    for (const int six : with_six) {
      const PeerInfo& one = infos[four];
      const PeerInfo& other = infos[six];
      if ((!one.has_interface() && !other.has_interface()) || is_same_host(one, other)) continue;
      return Error(Code::mismatch,
                   sentence("rank ", four, " has only IPv4 addresses", chosen_by(one), ", rank ",
                            six, " only IPv6", chosen_by(other),
                            ": ranks connect by addresses of the same family"),
                   std::max(four, six));
    }
  }
  return std::nullopt;
}

std::vector<Address> addresses_of(const PeerInfo& info, const PeerInfo& mine) {
  std::vector<Address> all;
  const auto port = static_cast<int>(base::parse_int(info.port).value_or(0));
  for (const std::string_view host : base::split(info.hosts, ',')) {
    for (const Address& one : read_addresses(std::string(host), port)) {
      if (!one.is_loopback() || info.host == mine.host) all.push_back(one);
    }
  }
  return all;
}

bool is_oversubscribed(const std::vector<PeerInfo>& infos, int me) {
  cpu_set_t cpus = base::allowed_cpus();
  int near = 1;
  for (int rank = 0; rank < static_cast<int>(infos.size()); ++rank) {
    if (rank == me || !is_same_host(infos[rank], infos[me])) continue;
    const cpu_set_t theirs = cpus_of(infos[rank]);
    CPU_OR(&cpus, &cpus, &theirs);
    ++near;
  }
  return CPU_COUNT(&cpus) < near;
}

}  // namespace plait::comm::tcp
