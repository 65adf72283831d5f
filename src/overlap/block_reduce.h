// The flow of an operator's partial sums to their owners: the blocks of a matrix that is computed
// part by part (see Cut).
//
//   reduce.begin(result);
//   for each part:  reduce.ready(part, where its blocks are);  reduce.step();
//   exchange.wait([&] { reduce.step(); return reduce.done(); }, ...)
//
// A rank may also write its blocks straight into the owners' slots: has_room(), slot(), posted().
// On an s8 wire it can't: blocks are f32 until they are sent.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/flow/reduce_flow.h"
#include "overlap/cut.h"
#include "overlap/exchange.h"
#include "plait/tensor_view.h"
#include "plan/sizes.h"

namespace plait::overlap {

// The destination of this rank's sums: the owner's rows, beginning with `first_row`.
struct Result {
  TensorView out;
  std::int64_t first_row = 0;
  const float* bias = nullptr;  // of all columns; nullptr: none
};

// The blocks that the flow reads and writes.
class CutPartials final : public comm::Partials {
 public:
  CutPartials(const Cut& cut, int rank, int world)
      : cut_(cut), rank_(rank), world_(static_cast<std::size_t>(world)), own_(cut.parts().size()) {}

  void set_result(const Result& result) { result_ = result; }
  void set_blocks(int part, const std::vector<ConstTensorView>& blocks);
  void set_own(int part, const ConstTensorView& block) {
    own_[static_cast<std::size_t>(part)] = block;
  }

  std::uint32_t chunks(int /*owner*/) const override { return cut_.chunks(); }
  comm::Extent extent(std::uint32_t chunk, int owner) const override {
    const Block block = cut_.block(chunk, owner);
    return {.rows = length(block.rows), .cols = length(block.columns)};
  }
  ConstTensorView part(std::uint32_t chunk, int owner) const override;
  TensorView sum(std::uint32_t chunk) const override;
  const float* bias(std::uint32_t chunk) const override {
    return result_.bias == nullptr ? nullptr
                                   : result_.bias + cut_.block(chunk, rank_).columns.begin;
  }

 private:
  const Cut& cut_;
  int rank_;
  std::size_t world_;
  Result result_;
  std::vector<ConstTensorView> own_;      // by part: this rank's block
  std::vector<ConstTensorView> sources_;  // [part][rank], where blocks are made to be sent
};

class BlockReduce {
 public:
  // `per_host`: 1 unless blocks are passed to ready(), in f32.
  BlockReduce(Exchange& exchange, const Cut& cut, Dtype wire, int threads, int per_host = 1)
      : cut_(cut),
        hosts_(exchange.rank(), exchange.world(), per_host),
        partials_(cut, exchange.rank(), exchange.world()),
        flow_(exchange, hosts_, partials_,
              {.wire = plan::partial_dtype(wire),
               .is_coded = wire == Dtype::s8,
               .threads = threads}) {}

  void begin(const Result& result) {
    partials_.set_result(result);
    flow_.begin();
  }

  // Hands over a part's blocks, given by where each rank's begins. They must stay readable until
  // all the part's chunks are retired.
  void ready(int part, const std::vector<ConstTensorView>& blocks) {
    partials_.set_blocks(part, blocks);
    flow_.ready(cut_.parts()[static_cast<std::size_t>(part)].end_chunk());
  }

  // Writing into the slots: whether the owners have room for the next chunk, where a peer's block
  // is to be written, and that all are there. `own` is this rank's own block.
  bool has_room() const { return flow_.has_room(); }
  TensorView slot(int peer) { return flow_.slot(peer); }
  void posted(const ConstTensorView& own) {
    partials_.set_own(cut_.part_of(flow_.ready()), own);
    flow_.posted();
  }

  void step() { flow_.step(); }
  std::uint32_t summed() const { return flow_.summed(); }
  std::uint32_t retired() const { return flow_.retired(); }
  bool done() const { return flow_.done(); }
  comm::Awaited awaited() const { return flow_.awaited(); }

 private:
  const Cut& cut_;
  comm::Hosts hosts_;
  CutPartials partials_;
  comm::ReduceFlow flow_;
};

}  // namespace plait::overlap
