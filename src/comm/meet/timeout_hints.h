// A rank's identity while ranks meet over TCP, and hints at why others are missing.
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
  PeerInfo info = {};

  bool has_secret() const { return !key.empty(); }
};

// Hints for the sentence about ranks that have not come. They come from callers that have proved
// nothing, so they are only printed.
struct TimeoutHints {
  std::map<int, std::string> of_rank;  // why a caller that claimed this rank was refused
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
