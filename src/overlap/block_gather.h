// The flow of blocks of a matrix (see Cut) from their owners to all ranks.
//
//   gather.begin({.own = x, .first_row = shard.begin, .all = gathered});
//   gather.ready(n);   // the first n chunks' own blocks can be read
//   gather.step();
#pragma once

#include <cstdint>

#include "comm/flow/gather_flow.h"
#include "overlap/cut.h"
#include "overlap/exchange.h"
#include "plait/tensor_view.h"

namespace plait::overlap {

struct GatherOperands {
  ConstTensorView own;         // this rank's rows
  std::int64_t first_row = 0;  // of `own` in the whole
  TensorView all;              // the whole: the others' rows are written
};

// The blocks that the flow reads and writes.
class CutShares final : public comm::Shares {
 public:
  CutShares(const Cut& cut, int rank) : cut_(cut), rank_(rank) {}

  void set(const GatherOperands& what) { what_ = what; }

  std::uint32_t chunks(int /*owner*/) const override { return cut_.chunks(); }
  ConstTensorView own(std::uint32_t chunk) const override {
    return block_of(what_.own, cut_.block(chunk, rank_), what_.first_row);
  }
  TensorView place(std::uint32_t chunk, int owner) const override {
    return block_of(what_.all, cut_.block(chunk, owner), 0);
  }

 private:
  template <class View>
  static View block_of(const View& matrix, const Block& block, std::int64_t first_row) {
    return matrix.row_range(block.rows.begin - first_row, block.rows.end - first_row)
        .column_range(block.columns.begin, block.columns.end);
  }

  const Cut& cut_;
  int rank_;
  GatherOperands what_;
};

class BlockGather {
 public:
  // If each host has `per_host` ranks, a block crosses to each other host once.
  BlockGather(Exchange& exchange, const Cut& cut, Way way, int per_host = 1)
      : hosts_(exchange.rank(), exchange.world(), per_host),
        shares_(cut, exchange.rank()),
        flow_(exchange, hosts_, shares_, way) {}

  void begin(const GatherOperands& what) {
    shares_.set(what);
    flow_.begin();
  }
  void ready(std::uint32_t chunks) { flow_.ready(chunks); }
  void step() { flow_.step(); }

  // Chunks of which this rank's block has come; all ranks' blocks.
  std::uint32_t received(int rank) const { return flow_.received(rank); }
  std::uint32_t received() const { return flow_.received(); }
  // Chunks whose own block has been sent to every peer.
  std::uint32_t sent() const { return flow_.sent(); }
  bool done() const { return flow_.done(); }
  comm::Awaited awaited() const { return flow_.awaited(); }

 private:
  comm::Hosts hosts_;
  CutShares shares_;
  comm::GatherFlow flow_;
};

}  // namespace plait::overlap
