// Keeps the connections that rank 0 has accepted until each caller has said which rank it is.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/socket.h"
#include "comm/meet/meeting_place.h"

namespace plait::comm::shm {

inline constexpr const char* kShm = "shm";

// The first message of a rank.
struct ShmHello {
  int rank;
  int world;
  long pid;
  std::string build;             // see build_name.h
  std::string transport = kShm;  // that it uses
};
std::string write(const ShmHello& hello);

// A connection whose rank is known.
struct KnownCaller {
  ShmHello hello;
  base::Fd socket;
};

class PendingConnections {
 public:
  explicit PendingConnections(MeetingPlace place);

  const std::string& obstacle() const { return place_.obstacle(); }

  // Waits until a process connects, or until something can be read, here or at one of `others`.
  // Returns the callers that have said which rank they are.
  std::vector<KnownCaller> wait(std::vector<const base::Fd*> others, base::Nanoseconds longest);

  void close();

  // If descriptors are scarce: closes the one that was kept for this case, so that further callers
  // can be accepted and told the reason, one at a time.
  void free_descriptor();

 private:
  struct Pending {
    base::Fd socket;
    base::Nanoseconds since;
  };

  void accept();
  void accept_from(const base::Fd& listener);
  std::vector<KnownCaller> receive_hellos();

  MeetingPlace place_;
  base::Fd spare_;  // a descriptor for free_descriptor() to close
  std::size_t most_;
  std::vector<Pending> pending_;
};

}  // namespace plait::comm::shm
