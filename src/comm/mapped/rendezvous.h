// How ranks whose memory can be mapped find each other and share it. The threads and shm transports
// differ in this alone; mailboxes and the group's health are the same code for both.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/region.h"
#include "comm/survivors/regrouping.h"

namespace plait::comm {

class Rendezvous {
 public:
  // Called now and then during a wait, with the peer that is waited for: throws when there is no
  // sense in going on. Empty while there is no group yet that could know of it.
  using Watch = std::function<void(int peer)>;

  Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  virtual ~Rendezvous() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;

  // For the waits of what follows.
  virtual void set_timeout(base::Nanoseconds timeout) = 0;

  // Collective.
  virtual std::vector<std::string> all_gather(const std::string& mine, const Watch& watch) = 0;

  // Collective: every rank makes a zeroed region of `bytes` bytes and gets the regions of all
  // ranks, in rank order. `purpose` must be the same text on all ranks: it is how they notice that
  // they are sharing memory for different things.
  virtual std::vector<base::Region> share(std::size_t bytes, const std::string& purpose,
                                          const Watch& watch) = 0;

  // Collective over all ranks; `members` as for Transport::subgroup, null when empty.
  virtual std::unique_ptr<Rendezvous> subgroup(const std::vector<int>& members,
                                               const Watch& watch) = 0;

  // For Regrouping::regroup(): the members alone call it, when the others may be dead.
  virtual std::unique_ptr<Rendezvous> regroup(const std::vector<int>& members,
                                              Regrouping::Exchange exchange,
                                              const Watch& watch) = 0;

  // True if the peer's process has ended.
  virtual bool has_ended(int peer) const = 0;

  // "pid 1234, stopped": for the sentence that blames it.
  virtual std::string describe(int peer) const = 0;

  // How it sees that a peer has left the group: all that this peer has sent is there by then. A
  // rendezvous that sees it by itself needs none.
  virtual void see_leaving_by(const std::function<bool(int peer)>& /*has_left*/) {}
};

}  // namespace plait::comm
