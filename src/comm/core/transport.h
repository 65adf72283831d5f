// How bytes move between the ranks of one group.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/core/group.h"
#include "comm/core/slot_transport.h"
#include "comm/core/wait_policy.h"
#include "plait/communicator.h"
#include "plait/link.h"
#include "plait/mailbox.h"

namespace plait::comm {

class Regrouping;

// Beyond any machine: a larger world is refused as a mistake.
inline constexpr int kMostRanks = 65536;

// The answer to "can you?": empty means yes, anything else says why not.
struct Availability {
  std::string refusal = {};
  explicit operator bool() const { return refusal.empty(); }
};

// The place that a transport is created for: where this rank stands, and what it may use to find
// the others.
struct Site {
  Place place;
  AllGatherBytes all_gather = {};  // create() calls it where it is there (see same_transport.h)
  std::optional<int> mpi = {};  // these ranks' communicator in the program's MPI, by MPI_Comm_c2f()
  WaitPolicy policy = {};       // while connecting
  std::string meeting_point = {};  // the place to meet rank 0; empty: the environment says it

  // The name of the transport that was chosen, which all ranks must have chosen; empty: unknown.
  std::string transport = {};

  // Asked about every 10 ms while ranks meet, until this rank has met rank 0, or as rank 0 all;
  // throws where they can't. May be empty.
  std::function<void()> watch = {};
};

class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  virtual Group& group() = 0;

  // For set-up only, a few thousand bytes; collective, as all below.
  virtual std::vector<std::string> all_gather(const std::string& mine) = 0;
  virtual std::unique_ptr<SlotTransport> make_slots(const MailboxDesc& desc) = 0;  // of a mailbox

  // A transport for `members` (ranks here, in their new order). Every rank of this group calls it
  // with the members of its own new group; a rank that joins none passes none and gets null. Errors
  // name ranks of this group.
  virtual std::unique_ptr<Transport> subgroup(const std::vector<int>& members) = 0;

  // How long this rank waits for another from the next call on: connecting has a deadline of its
  // own. While one thread alone knows of the transport.
  virtual void set_timeout(Nanoseconds timeout) { group().set_timeout(timeout); }

  // For survivors(). Null: no rank can go on when another is lost.
  virtual Regrouping* regrouping() { return nullptr; }

  // The link of its chunks, if it is known.
  virtual std::optional<Link> link() const { return std::nullopt; }

  // How chunks travel to a rank, and why so; empty: the transport's name says all.
  virtual std::string route_to(int /*peer*/) const { return {}; }

  // True if base::now() means the same on all ranks.
  virtual bool shares_clock() const { return true; }

  // This rank goes in good order, not by an error: peers that still wait for it are told so.
  virtual void leave() noexcept = 0;
};

}  // namespace plait::comm
