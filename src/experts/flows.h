// The flows of one call: rows to their experts, results back, and sums to ranks with the same rows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "comm/flow/counted_rows.h"
#include "comm/flow/row_flow.h"
#include "experts/rows.h"
#include "overlap/calls.h"
#include "overlap/exchange.h"

namespace plait::experts {

// Rows for experts: the numbers of rows travel with them.
class Dispatch final : public comm::RowParcels {
 public:
  // `row_bytes`: of a row or its result, whichever is longer. `make`: called when all numbers are
  // known, in `from`.
  Dispatch(comm::Group& group, std::int64_t groups, std::int64_t row_bytes, std::string_view call,
           std::function<void()> make)
      : from(group.world(), groups, row_bytes),
        counts(group.world(), groups, row_bytes),
        group_(group),
        call_(call),
        make_(std::move(make)) {}

  ConstTensorView rows = {};
  std::vector<comm::RowBlock> to_peers = {};
  TensorView places = {};
  comm::CountedRows from;    // by source
  comm::CountedRows counts;  // of to_peers

 private:
  ConstTensorView outgoing() const override { return rows; }
  const comm::RowBlock& block_to(int peer) const override {
    return to_peers[static_cast<std::size_t>(peer)];
  }
  std::span<const std::int64_t> counts_to(int peer) const override { return counts.counts(peer); }
  void learn(int peer, std::span<const std::int64_t> its) override {
    from.learn(peer, its, call_, group_);
  }
  void make_places() override { make_(); }
  TensorView incoming() const override { return places; }
  const comm::RowBlock& block_from(int peer) const override { return from.block(peer); }

  comm::Group& group_;
  std::string_view call_;
  std::function<void()> make_;
};

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
