// The flows of one operator, and what is done with both of them.
//
//   exchange_.wait([&] { return flows_.finish(); }, [&] { return flows_.awaited(); });
//
// Where an operator has both, a chunk is spread as soon as it is summed.
#pragma once

#include <memory>

#include "overlap/calls.h"
#include "overlap/spread.h"
#include "overlap/sums.h"

namespace plait::overlap {

class Flows {
 public:
  explicit Flows(Exchange& exchange) : exchange_(exchange) {}

  std::unique_ptr<Sums> sums;      // where partial sums travel
  std::unique_ptr<Spread> spread;  // where all ranks get all rows

  PollHook poll;

  // Does what can be done now beside the product.
  void step() {
    if (sums) sums->step();
    if (spread && sums) spread->made(sums->summed());
    if (spread) spread->step();
  }

  // Does that in a wait, and calls the poll hook.
  void wait_step() {
    step();
    poll();
  }

  // Does that between two tiles, where the transport may need help and a peer may be lost.
  void look() {
    step();
    exchange_.look_after();
    poll();
  }

  bool finish() {
    wait_step();
    return (!sums || sums->done()) && (!spread || spread->done());
  }

  comm::Awaited awaited() const {
    if (sums && !sums->done()) return sums->awaited();
    return spread ? spread->awaited() : exchange_.nothing_awaited();
  }

 private:
  Exchange& exchange_;
};

}  // namespace plait::overlap
