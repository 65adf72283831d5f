#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/host.h"
#include "base/text.h"
#include "comm/engines/shm/factory.h"
#include "comm/mapped/mapped_transport.h"
#include "comm/meet/socket_rendezvous.h"

namespace plait::comm::shm {

Availability available() { return {}; }

Availability supports(const Site& site) {
  if (site.place.hosts > 1) {
    return {base::sentence("shares the memory of one host; these ranks are on ", site.place.hosts)};
  }
  if (!site.place.host.empty() && site.place.world > 1) {
    return {base::sentence("shares the memory of one host; PLAIT_HOST=", site.place.host,
                           " simulates several")};
  }
  return {};
}

namespace {

// A rank's text in the caller's own store: where to meet (rank 0), and where the rank is.
struct Introduction {
  std::string name;
  std::string host;
  std::string network;
};

std::string write(const Introduction& introduction) {
  const auto or_unknown = [](const std::string& text) { return text.empty() ? "?" : text; };
  return base::sentence(or_unknown(introduction.name), ' ', or_unknown(introduction.host), ' ',
                        or_unknown(introduction.network));
}

std::optional<Introduction> read(const std::string& text) {
  const auto words = base::split(text, ' ');
  if (words.size() != 3) return std::nullopt;
  return Introduction{.name = std::string(words[0]),
                      .host = std::string(words[1]),
                      .network = std::string(words[2])};
}

// Other programs may use the store too, so what it returns is checked before it is believed.
std::vector<Introduction> read_all(const std::vector<std::string>& texts, const Endpoint& endpoint,
                                   const std::string& mine) {
  std::vector<Introduction> introductions;
  for (int rank = 0; rank < endpoint.world; ++rank) {
    const std::string& text = texts[rank];
    const auto introduction = read(text);
    const bool plausible =
        introduction &&
        (rank != 0 || (endpoint.rank == 0 ? text == mine : is_secret_name(introduction->name)));
    PLAIT_CHECK(plausible, "the caller's all_gather returned \"", text.substr(0, 40),
                text.size() > 40 ? "..." : "", "\" for rank ", rank, ", which it cannot have sent");
    introductions.push_back(*introduction);
  }
  return introductions;
}

// The ranks that differ from rank 0, as far as both values are known.
std::vector<int> differing_ranks(const std::vector<Introduction>& introductions,
                                 std::string Introduction::* what) {
  std::vector<int> ranks;
  for (int rank = 1; rank < static_cast<int>(introductions.size()); ++rank) {
    const std::string& here = introductions[0].*what;
    const std::string& there = introductions[rank].*what;
    if (here != there && here != "?" && there != "?") ranks.push_back(rank);
  }
  return ranks;
}

// All ranks see the same introductions, so they refuse at once instead of waiting for ranks that
// can't come.
void check_one_host(const std::vector<Introduction>& introductions) {
  const auto subject = [](const std::vector<int>& ranks) {
    return base::sentence(ranks.size() > 1 ? "ranks " : "rank ", base::show_list(ranks),
                          ranks.size() > 1 ? " are" : " is");
  };
  const auto on_other_hosts = differing_ranks(introductions, &Introduction::host);
  PLAIT_CHECK(on_other_hosts.empty(), "the shm transport shares the memory of one host; ",
              subject(on_other_hosts), " on another host than rank 0");
  const auto in_other_networks = differing_ranks(introductions, &Introduction::network);
  PLAIT_CHECK(in_other_networks.empty(),
              "the shm transport needs one network namespace to meet in; ",
              subject(in_other_networks), " in another than rank 0");
}

}  // namespace

std::unique_ptr<Transport> create(const Site& site) {
  const Endpoint endpoint = {
      .rank = site.place.rank, .world = site.place.world, .timeout = site.policy.timeout};
  const Watch watch = watch_for_interruption(site.policy);
  if (!site.all_gather) {
    // No peer calls a rank that is alone, and other such ranks may run beside it.
    const std::string name = endpoint.world == 1 ? make_secret_name() : name_of_job(site.place.job);
    return make_mapped_transport(meet_at(name, endpoint, watch), site.policy);
  }
  // The caller's own store carries a name that no other process can guess.
  const std::string name = endpoint.rank == 0 ? make_secret_name() : "";
  std::optional<MeetingPlace> place;
  if (endpoint.rank == 0) place.emplace(name, base::now() + endpoint.timeout, watch);
  const std::string mine =
      write({.name = name, .host = base::host_id(), .network = base::namespace_id("net")});
  const std::vector<Introduction> introductions = read_all(site.all_gather(mine), endpoint, mine);
  check_one_host(introductions);
  std::vector<base::Fd> sockets;
  if (place) {
    sockets = assemble(std::move(*place), endpoint, watch);
  } else {
    sockets.push_back(attend(introductions[0].name, endpoint, watch));
  }
  return make_mapped_transport(
      std::make_unique<SocketRendezvous>(endpoint, std::move(sockets), watch), site.policy);
}

}  // namespace plait::comm::shm
