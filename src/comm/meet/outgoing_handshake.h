// A call to another rank while ranks meet: it connects to the rank's addresses in turn, says hello,
// proves that it knows the secret, if there is one, and waits for the rank's welcome. A probe only
// finds out whether the rank still listens.
#pragma once

#include <poll.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process_mark.h"
#include "comm/control/address.h"
#include "comm/meet/timeout_hints.h"

namespace plait::comm::tcp {

class OutgoingHandshake {
 public:
  // At the rendezvous rank 0 answers when all ranks have connected. The user has given its address,
  // so a wrong answer there is an error. At other addresses an unrelated process may listen.
  enum class At { rendezvous, own_address, own_address_as_probe };

  OutgoingHandshake(int rank, std::vector<Address> addresses, At at)
      : rank_(rank),
        addresses_(std::move(addresses)),
        is_to_rendezvous_(at == At::rendezvous),
        is_probe_(at == At::own_address_as_probe) {}

  int rank() const { return rank_; }
  bool is_to_rendezvous() const { return is_to_rendezvous_; }
  bool has_socket() const { return static_cast<bool>(socket_); }
  bool is_over() const { return is_over_; }

  // The address of its last call, and how that ended, in words; empty: no address has been tried in
  // full.
  std::string outcome() const;

  // True if all addresses, one after another, have answered that no process listens there.
  bool is_refused() const { return !addresses_.empty() && refusals_ >= addresses_.size(); }

  // True if rank 0, which was met at the rendezvous, ran on this host and has ended.
  bool has_seen_the_end() const;
  const base::ProcessMark& process() const { return process_; }

  // Begins to connect to the next address, when it is time for that. Throws Error if this process
  // has no descriptors left.
  void begin();

  // Continues if it has a socket. Returns the text of the welcome when that has arrived; then the
  // call is over.
  std::optional<std::string> advance(const Identity& self, TimeoutHints& hints);
  base::Fd take_socket() { return std::move(socket_); }

  // Says it to rank 0 while that waits for other ranks at the rendezvous. False: this isn't such a
  // call, or rank 0 doesn't listen.
  bool send_to_rank_0(MessageKind kind, const std::string& text, const Identity& self) const;

  // The answer of rank 0 to a call that has to wait for its welcome.
  static std::string mark_of(const Identity& self);

  // Adds the events that poll() has to wait for.
  void add_to(std::vector<pollfd>& sockets) const;

 private:
  void note_end(int error);
  std::string show(const std::string& outcome) const;
  bool is_trusted(const Identity& self) const { return is_proved_ || !self.has_secret(); }
  void send_hello(const Identity& self);
  std::optional<std::string> receive(const Identity& self, TimeoutHints& hints);
  void receive_challenge(const std::string& text, const Identity& self, TimeoutHints& hints);
  void distrust(const Identity& self, TimeoutHints& hints);

  int rank_;
  std::vector<Address> addresses_;
  bool is_to_rendezvous_;
  bool is_probe_;
  std::size_t next_ = 0;      // of the addresses, in turn
  std::size_t refusals_ = 0;  // since one of them did anything else
  base::Fd socket_ = {};
  std::string hello_ = {};  // the message that was sent; empty: none yet
  bool was_accepted_ = false;
  std::string outcome_ = {};
  bool is_proved_ = false;          // that the rank knows the secret
  base::ProcessMark process_ = {};  // that was met at the rendezvous
  std::string heard_ = {};
  base::Nanoseconds since_ = 0;
  bool is_over_ = false;
};

}  // namespace plait::comm::tcp
