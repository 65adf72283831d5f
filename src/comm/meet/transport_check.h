// For a rank that is meeting the others by another transport than shm: finds ranks of the same job
// on this host that have chosen a different one.
//
// Rank 0 listens where it would listen for ranks that use shm, until the ranks have met. The others
// call there what listens, whether it is such a rank 0 or one that uses shm, and say which
// transport they use. Rank 0 refuses all ranks where one of them uses another transport than it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/core/transport.h"
#include "comm/meet/meeting_place.h"
#include "comm/meet/pending_connections.h"
#include "plait/error.h"

namespace plait::comm {

// A mismatch that blames `rank`.
Error transports_differ(int rank, const std::string& transport, int other,
                        const std::string& its_transport);

namespace shm {

class TransportCheck {
 public:
  explicit TransportCheck(const Site& site);

  // To be called again and again until this rank has met rank 0, or as rank 0 has met all others.
  // Throws Error{mismatch} where another rank uses another transport.
  void poll();

 private:
  void poll_as_rank_0(PendingConnections& pending);
  void poll_as_other_rank(Finder& finder);
  [[noreturn]] void refuse(const KnownCaller& caller, PendingConnections& pending);

  int rank_;
  int world_;
  std::string transport_;
  base::Nanoseconds poll_at_;

  std::optional<PendingConnections> pending_;  // on rank 0, where the place is free
  std::vector<KnownCaller> callers_;           // on rank 0: those of the same build

  std::optional<Finder> finder_;  // on the other ranks
  base::Fd rank_0_;               // to rank 0, where it has been found
};

}  // namespace shm
}  // namespace plait::comm
