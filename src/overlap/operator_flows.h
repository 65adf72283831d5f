// The flows of one operator, and the steps that advance both of them.
//
//   exchange_.wait([&] { return flows_.finish(); }, [&] { return flows_.awaited(); });
//
// If an operator has both, a chunk is gathered as soon as it is summed.
#pragma once

#include <memory>

#include "overlap/block_gather.h"
#include "overlap/block_reduce.h"
#include "overlap/calls.h"

namespace plait::overlap {

class OperatorFlows {
 public:
  explicit OperatorFlows(Exchange& exchange) : exchange_(exchange) {}

  std::unique_ptr<BlockReduce> reduce;  // null unless partial sums travel
  std::unique_ptr<BlockGather> gather;  // null unless all ranks get all rows

  PollHook poll;

  // Does what can be done now beside the product.
  void step() {
    if (reduce) reduce->step();
    if (gather && reduce) gather->ready(reduce->summed());
    if (gather) gather->step();
  }

  // Does that in a wait, and calls the poll hook.
  void wait_step() {
    step();
    poll();
  }

  // Does that between two tiles, where the transport may need help and a peer may be lost.
  void between_tiles() {
    step();
    exchange_.between_tiles();
    poll();
  }

  bool finish() {
    wait_step();
    return (!reduce || reduce->done()) && (!gather || gather->done());
  }

  comm::Awaited awaited() const {
    if (reduce && !reduce->done()) return reduce->awaited();
    return gather ? gather->awaited() : exchange_.nothing_awaited();
  }

 private:
  Exchange& exchange_;
};

}  // namespace plait::overlap
