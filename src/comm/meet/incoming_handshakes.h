// The processes that call a rank while ranks meet. A caller says which rank it is, and proves that
// it knows the secret, if there is one; then it is admitted, or told in words why not.
#pragma once

#include <poll.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/function_ref.h"
#include "comm/meet/handshake.h"
#include "comm/meet/timeout_hints.h"

namespace plait::comm::tcp {

// A caller or listener that says nothing for so long is dropped.
inline constexpr base::Nanoseconds kSilentCaller = 5 * base::kSecond;

class IncomingHandshakes {
 public:
  // Takes the socket of a rank that has called; or leaves it, and the connection is closed.
  using Admit = base::FunctionRef<void(base::Fd& socket, const Hello& hello)>;

  explicit IncomingHandshakes(int world);

  bool are_none() const { return callers_.empty(); }
  bool has_room() const { return callers_.size() < most_; }

  // Takes the callers that wait at the listener. Throws Error where this process has no descriptors
  // left although there are no callers.
  void accept(const base::Fd& listener);

  // Listens to what they have said.
  void receive(const Identity& self, TimeoutHints& hints, Admit admit);

  // For a process that has no descriptors left, which callers that are no ranks must have taken.
  void drop_unknown_callers();

  // Adds the sockets that poll() is to wait for.
  void add_to(std::vector<pollfd>& sockets) const;

 private:
  struct Caller {
    base::Fd socket;
    std::string said = {};
    base::Nanoseconds since;
    std::optional<Hello> hello = {};  // of a caller that is to prove that it knows the secret
    std::string proof = {};           // that it is to send
  };

  static bool is_finished(Caller& caller, const Identity& self, TimeoutHints& hints, Admit admit);
  static bool answer(Caller& caller, const std::string& text, const Identity& self,
                     TimeoutHints& hints, Admit admit);

  std::vector<Caller> callers_;
  std::size_t most_;
};

}  // namespace plait::comm::tcp
