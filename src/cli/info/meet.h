// The job as its ranks see it once they are connected: hosts, and how each peer is reached.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plait/communicator.h"
#include "plan/profile.h"

namespace plait::cli {

struct HostFinding {
  std::string name;
  std::vector<int> ranks = {};
};

struct PeerFinding {
  int rank;
  std::string host;
  std::string route;  // how chunks travel there
};

struct RanksFinding {
  Place place;
  std::string transport;
  bool has_secret;
  std::vector<HostFinding> hosts = {};                 // by their first ranks
  std::vector<PeerFinding> peers = {};                 // all but this rank
  std::optional<plan::TransportFigures> network = {};  // between several hosts
};

// Collective: joins the other ranks of the launcher.
RanksFinding meet_ranks();

std::string show_text(const RanksFinding& finding);
nlohmann::ordered_json show_json(const RanksFinding& finding);

}  // namespace plait::cli
