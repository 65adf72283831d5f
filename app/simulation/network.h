// The network between simulated ranks: when a chunk that is handed over leaves, and when it
// arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "plait/link.h"
#include "plait/trace.h"
#include "simulation/bookings.h"

namespace plait::comm::modelled {

//   pairs: a wire each way between every two ranks    ports: a wire out of every rank and one
//          0 <==> 1                                          into it, and a switch between them
//          ^^   ^^                                            0 ==\  /== 1
//            \\2//                                                  ><
//                                                             2 ==/  \== 3
//   shared: one wire for all
enum class Wiring : std::uint8_t { pairs, ports, shared };

std::string_view name(Wiring wiring);

struct Network {
  Link link;  // of one wire, in one direction
  Wiring wiring = Wiring::pairs;

  // Between hosts the kernel's work for a byte takes this long, once on the processor of the rank
  // that sends it and once on the receiver's.
  double processor_ns_per_byte = 0;
};

class Wires {
 public:
  Wires(const Network& network, int world);

  const Network& network() const { return network_; }

  // Books the wires for a chunk that is handed over at `from`: it leaves when the wires that it
  // needs are free, and arrives `latency` after its last byte has left. Processors work on bytes
  // that leave and arrive, and slow processors make the chunk later.
  TimeInterval book(int source, int destination, std::size_t bytes, base::Nanoseconds from);

  // How long a rank's processor has worked for the network until `now`, which is no earlier than in
  // any call before.
  base::Nanoseconds worked_until(int rank, base::Nanoseconds now);

 private:
  TimeInterval carry(std::size_t source, std::size_t destination, base::Nanoseconds occupied,
                     base::Nanoseconds from);

  Network network_;
  std::size_t world_;
  std::vector<base::Nanoseconds> free_out_;  // by rank, or by pair of ranks
  std::vector<Bookings> into_;               // the wires into ranks
  std::vector<Bookings> processors_;         // of ranks; empty if the network needs none
};

}  // namespace plait::comm::modelled
