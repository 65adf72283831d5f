// How the processes of a group find each other: rank 0 listens at a name that all know, the others
// call, and when all have come each holds a socket to rank 0.
//
// Only processes of the same user are accepted. A caller of another user, or one that sends
// nonsense or nothing, is ignored. However many of them call, every wait ends at its deadline, and
// rank 0 goes on accepting its own ranks: foreign callers cost it the time to close their
// connections. Where they keep the queue of callers full, ranks call again until they find room in
// it.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/socket.h"
#include "comm/core/build_name.h"
#include "comm/meet/meeting_place.h"
#include "plait/error.h"

namespace plait::comm::shm {

// The data with which one rank meets the others.
struct Endpoint {
  int rank;
  int world;
  base::Nanoseconds timeout;
  bool in_group = false;                          // its ranks are in a group already
  std::string build = std::string(build_name());  // ranks of other builds are refused
};

// Rank 0: sockets by rank (its own stays empty). Throws, and tells the callers, when a rank is
// missing at the deadline, claimed twice, sees another world, or is of another build.
std::vector<base::Fd> assemble(MeetingPlace place, const Endpoint& endpoint,
                               const Watch& watch = {});

// The others: one socket, to rank 0.
base::Fd attend(const std::string& name, const Endpoint& endpoint, const Watch& watch = {});

// A sentence that ends the set-up on the other side, and its reading.
std::string encode_failure(const Error& error);
[[noreturn]] void raise_failure(const std::string& message);
inline bool is_failure(const std::string& message) {
  return !message.empty() && message.front() == '!';
}

}  // namespace plait::comm::shm
