// The network between simulated ranks: when a chunk that is handed over leaves, and when it
// arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "plait/link.h"
#include "plait/trace.h"

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
};

class Wires {
 public:
  Wires(const Network& network, int world);

  const Network& network() const { return network_; }

  // Books the wires for a chunk that is handed over at `from`: it leaves when the wires that it
  // needs are free, and arrives `latency` after its last byte has left.
  TimeInterval book(int source, int destination, std::size_t bytes, base::Nanoseconds from);

 private:
  Network network_;
  std::size_t world_;
  base::Nanoseconds take_in(std::size_t destination, base::Nanoseconds from,
                            base::Nanoseconds occupied);

  std::vector<base::Nanoseconds> free_out_;  // by rank, or by pair of ranks

  // When wires into ranks are taken, in order: what is handed over later may come before.
  std::vector<std::deque<TimeInterval>> taken_in_;
};

}  // namespace plait::comm::modelled
