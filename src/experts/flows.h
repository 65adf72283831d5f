// A flow of one call: rows to their experts, results back, or sums to ranks with the same rows.
#pragma once

#include "comm/flow/row_flow.h"
#include "overlap/exchange.h"

namespace plait::experts {

// A flow that takes part in a call from begin() on.
class Stage {
 public:
  Stage(overlap::Exchange& exchange, comm::RowParcels& parcels, const comm::RowCut& cut,
        overlap::Way way)
      : flow_(exchange, parcels, cut, way) {}

  void reset() { has_begun_ = false; }
  void begin() {
    flow_.begin();
    has_begun_ = true;
  }
  comm::RowFlow& flow() { return flow_; }
  bool has_begun() const { return has_begun_; }
  void step() {
    if (has_begun_) flow_.step();
  }
  bool done() const { return has_begun_ && flow_.done(); }

 private:
  comm::RowFlow flow_;
  bool has_begun_ = false;
};

}  // namespace plait::experts
