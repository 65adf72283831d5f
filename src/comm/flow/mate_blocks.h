// The order in which a lane between two mates brings blocks.
#pragma once

#include <cstdint>

#include "comm/flow/blocks.h"
#include "comm/flow/hosts.h"

namespace plait::comm {

// Each chunk has a block of one owner on each host, and these come in turn. Shards may have
// different numbers of chunks: blocks that don't exist are left out.
class MateBlocks {
 public:
  enum class First { this_host, next_host };

  // The owners are `rank` and its counterparts. `first`: the host whose block begins each chunk.
  MateBlocks(const Hosts& hosts, const Blocks& blocks, int rank, First first)
      : hosts_(hosts), blocks_(blocks), rank_(rank), first_(first == First::this_host ? 0 : 1) {}

  // The next call.
  void begin();

  // The next block: the number of its chunk, and its owner.
  std::uint32_t chunk() const { return chunk_; }
  int owner() const { return hosts_.counterpart_of(rank_, hosts_.host_at(turn_ + first_)); }
  bool is_at(std::uint32_t chunk, int owner) const {
    return chunk == chunk_ && owner == this->owner();
  }
  bool is_within_chunk() const { return turn_ > 0; }

  void advance();
  bool done() const { return chunk_ == chunks_; }

 private:
  void skip_missing();
  void step();

  const Hosts& hosts_;
  const Blocks& blocks_;
  int rank_;
  int first_;
  std::uint32_t chunks_ = 0;  // of the longest of the owners' shards
  std::uint32_t chunk_ = 0;
  int turn_ = 0;
};

}  // namespace plait::comm
