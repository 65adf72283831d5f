// A flow of blocks of which each is for one receiver.
//
//   flow.step();
//   wait until flow.step(), flow.done();
#pragma once

#include <cstdint>

#include "comm/flow/blocks.h"
#include "comm/flow/lanes.h"
#include "plait/tensor_view.h"

namespace plait::comm {

// The chunks that an ExchangeFlow sends to each peer, and receives from it. Both ranks of a pair
// know how many chunks travel between them; other ranks need not.
class Parcels {
 public:
  virtual ~Parcels() = default;
  virtual std::uint32_t chunks_to(int peer) const = 0;
  virtual std::uint32_t chunks_from(int peer) const = 0;
  virtual ConstTensorView outgoing(std::uint32_t chunk, int peer) const = 0;
  virtual TensorView incoming(std::uint32_t chunk, int peer) const = 0;
  virtual Handling handling_to(int /*peer*/) const { return {}; }
  virtual Handling handling_from(int /*peer*/) const { return {}; }
};

class ExchangeFlow {
 public:
  ExchangeFlow(Lanes& lanes, const Parcels& parcels) : lanes_(lanes), parcels_(parcels) {}

  // Sends and receives all chunks for which this is possible without waiting.
  void step() {
    while (step_once()) continue;
  }
  // A chunk of each lane at most; false if nothing can be done.
  bool step_once();

  bool done() const;
  Awaited awaited() const;

 private:
  bool send_next(int peer);
  bool take_next(int peer);

  Lanes& lanes_;
  const Parcels& parcels_;
};

}  // namespace plait::comm
