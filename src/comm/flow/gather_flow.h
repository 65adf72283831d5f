// A flow of blocks from their owners to all ranks.
//
//   flow.begin();
//   flow.ready(n);   // the first n chunks of this rank's own shard can be read
//   flow.step();
//
// If each host has several ranks, a block crosses to each other host once, to the owner's
// counterpart there, which hands it on to its mates. A mate's lane brings its own block of a chunk,
// and then those of its counterparts, in turn from the next host on.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/flow/blocks.h"
#include "comm/flow/hosts.h"
#include "comm/flow/lanes.h"
#include "comm/flow/mate_blocks.h"
#include "plait/tensor_view.h"

namespace plait::comm {

// The blocks that a GatherFlow brings to all ranks.
class Shares : public Blocks {
 public:
  virtual ConstTensorView own(std::uint32_t chunk) const = 0;
  // The place of another rank's block.
  virtual TensorView place(std::uint32_t chunk, int owner) const = 0;
};

class GatherFlow {
 public:
  GatherFlow(Lanes& lanes, const Hosts& hosts, const Shares& shares, Way way = Way::out);
  GatherFlow(const GatherFlow&) = delete;
  GatherFlow& operator=(const GatherFlow&) = delete;

  // The next call.
  void begin();
  void ready(std::uint32_t chunks) { ready_ = chunks; }

  // Sends and receives what can be now.
  void step() {
    while (step_once()) continue;
  }
  // A chunk of each lane at most; false if nothing can be done.
  bool step_once();

  // Chunks of which another rank's block has come; all ranks' blocks.
  std::uint32_t received(int rank) const {
    return hands_on() ? received_[static_cast<std::size_t>(rank)] : lanes_.taken(way_, rank);
  }
  std::uint32_t received() const;
  // Chunks whose own block has been sent to every peer.
  std::uint32_t sent() const;
  bool done() const;

  Awaited awaited() const;

 private:
  bool send_to_mate(std::size_t index);
  bool take_from_mate(std::size_t index);
  bool send_across(int counterpart);
  bool take_across(int counterpart);
  void take(int peer, std::uint32_t chunk, int owner);

  bool hands_on() const { return !hosts_.mates().empty(); }

  Lanes& lanes_;
  const Hosts& hosts_;
  const Shares& shares_;
  Way way_;
  std::vector<MateBlocks> to_mates_;
  std::vector<MateBlocks> from_mates_;
  std::vector<std::uint32_t> received_;  // chunks, by owner; where lanes bring several owners'
  std::uint32_t own_chunks_ = 0;
  std::uint64_t to_send_ = 0;  // chunks that counterparts still get
  std::uint64_t to_take_ = 0;  // and still bring
  std::uint32_t ready_ = 0;
};

}  // namespace plait::comm
