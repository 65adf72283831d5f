// The identity of a rank while ranks over TCP meet, and its doubts about others.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/meet/handshake.h"

namespace plait::comm::tcp {

struct Identity {
  int rank;
  int world;
  std::string job;
  std::string key;  // that all ranks know and no other process; empty: the network is trusted
  Card card = {};

  bool has_secret() const { return !key.empty(); }
};

// Why ranks that have not come may be missing. Unknown processes can cause these sentences,
// and nothing more.
struct Doubts {
  std::map<int, std::string> of_rank;  // what was wrong with what said that it was this one
  std::string of_any;                  // a rank of another build has called

  // The reason for the first of these ranks for which there is one; empty: none is known.
  std::string about(const std::vector<int>& missing) const {
    for (const int rank : missing) {
      if (const auto found = of_rank.find(rank); found != of_rank.end()) return found->second;
      if (!of_any.empty()) return of_any;
    }
    return "";
  }
};

}  // namespace plait::comm::tcp
