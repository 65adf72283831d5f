// How the processes of a group find each other: rank 0 listens at a name that all know, the others
// call, and when all have come each holds a socket to rank 0.
//
// Only processes of the same user are let in. A caller of another user, or one that talks nonsense
// or nothing, is ignored. However many of them call, every wait ends at its deadline, and rank 0
// goes on letting its own ranks in: strangers cost it the time to hang up on them. Where they keep
// the queue of callers full, ranks call again and again until they find room in it.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/socket.h"
#include "comm/build_name.h"
#include "comm/shm/meeting_place.h"
#include "plait/error.h"

namespace plait::comm::shm {

struct Seat {
  int rank;
  int world;
  base::Nanoseconds timeout;
  bool in_group = false;                          // its ranks are in a group already
  std::string build = std::string(build_name());  // only of its own kind does it meet others
};

// Rank 0: sockets by rank (its own stays empty). Throws, and tells the callers, when a rank is
// missing at the deadline, claimed twice, sees another world, or is of another build.
std::vector<base::Fd> assemble(MeetingPlace place, const Seat& seat, const Watch& watch = {});

// The others: one socket, to rank 0.
base::Fd attend(const std::string& name, const Seat& seat, const Watch& watch = {});

// A sentence that ends the set-up on the other side, and its reading.
std::string encode_failure(const Error& error);
[[noreturn]] void raise_failure(const std::string& message);
inline bool is_failure(const std::string& message) {
  return !message.empty() && message.front() == '!';
}

}  // namespace plait::comm::shm
