// Which ranks have ended while the others still connect to them: a rank closes its connections, and
// listens no more. The caller of such a rank may have interrupted it, or its process was killed.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "comm/control/address.h"
#include "comm/meet/outgoing_handshake.h"
#include "comm/meet/timeout_hints.h"

namespace plait::comm::tcp {

class ExitProbe {
 public:
  using AddressesOf = std::function<std::vector<Address>(int rank)>;

  ExitProbe(int world, AddressesOf addresses_of)
      : ended_at_(world), addresses_of_(std::move(addresses_of)) {}

  // Notes that this rank has just seen the other one end, or has seen it there.
  void note(int rank, bool has_ended);

  // Finds out whether these ranks still listen, which have yet to call this one: one of them at a
  // time, now and then. Uses one descriptor at most, and does without where there is none.
  void probe(const std::vector<int>& awaited, const Identity& self, TimeoutHints& hints);

  // The rank that ended first, some time ago; null: none has. Until then the rank may call again,
  // and another one may tell the reason.
  std::optional<int> find_ended() const;

 private:
  int next_after(const std::vector<int>& awaited) const;

  std::vector<base::Nanoseconds> ended_at_;  // 0: it is there, as far as is known
  AddressesOf addresses_of_;
  std::optional<OutgoingHandshake> call_;
  base::Nanoseconds called_at_ = base::now();
  int called_ = -1;
};

}  // namespace plait::comm::tcp
