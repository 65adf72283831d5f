// For a rank that meets the others without TCP, by mpi: finds ranks of the same job that use tcp or
// ucx, where PLAIT_RENDEZVOUS or MASTER_ADDR says where rank 0 is.
//
// Rank 0 listens there, as it would with tcp, and the others call it. Rank 0 refuses all ranks if
// one of them uses another transport, whether it is this kind of rank 0 or one that uses tcp.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/fd.h"
#include "comm/control/lookup.h"
#include "comm/core/transport.h"
#include "comm/meet/incoming_handshakes.h"
#include "comm/meet/outgoing_handshake.h"
#include "comm/meet/timeout_hints.h"
#include "plait/error.h"

namespace plait::comm::tcp {

class RendezvousCheck {
 public:
  // Never throws: if rank 0 can't listen, or no variable says where it is, nothing is checked.
  explicit RendezvousCheck(const Site& site) noexcept;

  // To be called again and again while this rank meets the others. Throws Error{mismatch} if
  // another rank uses another transport.
  void poll();

 private:
  void begin(const Site& site);
  void poll_as_first(const Identity& self, IncomingHandshakes& callers);
  void poll_as_other(const Identity& self);
  void receive(const Identity& self, IncomingHandshakes& callers);
  [[noreturn]] void refuse(const Error& why, const Identity& self, IncomingHandshakes& callers);

  std::optional<Identity> self_;  // null: nothing is checked
  TimeoutHints hints_;
  base::Nanoseconds poll_at_ = 0;

  // Rank 0's.
  base::Fd listener_;
  std::optional<IncomingHandshakes> callers_;
  std::map<int, base::Fd> alike_;  // ranks that use the same transport
  std::optional<Error> difference_;
  std::set<int> told_;  // ranks that have heard of it

  // Another rank's, to rank 0.
  std::optional<Lookup> lookup_;
  std::optional<OutgoingHandshake> call_;
};

}  // namespace plait::comm::tcp
