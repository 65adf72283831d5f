// An engine that carries chunks over another network than the connections.
//
// The connections stay. They carry what ranks agree on, failures and farewells, and credits where
// the carrier does not; and they show which process is lost. Because a mailbox has credit for two
// chunks of each channel, a carrier never needs room that isn't there. A carrier that connects only
// when something is sent sends something to each process when it is made, so that is_sent() says
// when they are connected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/region.h"
#include "comm/control/connection.h"
#include "comm/control/frame.h"

namespace plait::comm::tcp {

// All functions but the destructor and note_failure() are called under the mesh's mutex, and what
// hold() returned is given up under it.
class Carrier {
 public:
  Carrier() = default;
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;
  virtual ~Carrier() = default;

  virtual std::string_view name() const = 0;

  // The route of chunks to the process, for people: "tcp/eth0".
  virtual std::string route_to(int process) const = 0;

  // An owner of memory that chunks will be sent from and received into. While it lives, the carrier
  // may keep the memory registered, so that no chunk needs a registration of its own. Its last copy
  // must go before the carrier.
  virtual std::shared_ptr<const void> hold(const base::Region& memory) = 0;

  // Begins to send a chunk, whose bytes stay where they are as long as `owner` lives. Nothing is
  // sent to a process for which there is an error.
  virtual void send(int process, const Frame& frame, const std::byte* payload,
                    std::shared_ptr<const void> owner) = 0;

  // True if credits go by send() too, so that the connections need only be asked now and then.
  virtual bool takes_credits() const { return false; }

  // Sends and receives what can be moved now. Chunks of a process reach their receivers in the
  // order in which they were sent. True: something came.
  virtual bool move(const Connection::Find& find) = 0;

  // How many chunks this process has sent to that one, and how many of that one's have reached
  // their receivers, or found none. Both go on at 0 after the largest number.
  virtual std::uint32_t sent_to(int process) const = 0;
  virtual std::uint32_t come_from(int process) const = 0;

  // True if move() has nothing left to do for what was sent to the process.
  virtual bool is_sent(int process) const = 0;

  // True if the process is known to have the first `count` chunks that were sent to it, and needs
  // no call of this one for them. Asks it where that isn't known.
  virtual bool is_received(int process, std::uint32_t count) = 0;

  // The process has released one of the chunks that were sent to it, so it has received it.
  virtual void note_credit(int process) = 0;

  // Why chunks can't reach the process or come from it any more; empty: they can.
  virtual const std::string& error_of(int process) const = 0;

  // For a thread that sleeps: readable when move() has something to do, if arm() has returned true
  // since the last move(). It returns false if there is something to do at once.
  virtual int descriptor() const = 0;
  virtual bool arm() = 0;

  // A group has failed, so perhaps not every process will come to its end in good order.
  virtual void note_failure() noexcept {}
};

}  // namespace plait::comm::tcp
