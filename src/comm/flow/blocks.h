// Blocks of matrices, which travel as chunks: in a slot their rows lie together.
//
// Each rank owns a shard, which is cut in chunks; chunk i of a shard is the block that all flows of
// a call know by this number. A vector is a matrix of one row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/flow/lanes.h"
#include "plait/tensor_view.h"

namespace plait::comm {

// How an owner's blocks are copied.
struct Handling {
  bool is_large = false;      // one run of bytes, too long for the caches: written past them
  bool must_be_done = false;  // see MemoryWork
};

class Blocks {
 public:
  virtual ~Blocks() = default;

  // How many chunks the owner's shard is. Ranks that cut alike have the same numbers.
  virtual std::uint32_t chunks(int owner) const = 0;
  virtual Handling handling(int /*owner*/) const { return {}; }
};

// A lane, and the chunk's number in its owner's shard.
struct Route {
  Way way;
  int peer;
  std::uint32_t chunk;
};

// Copies a block into the lane's next slot, which must be vacant, and posts it.
void send_block(Lanes& lanes, const Route& to, const ConstTensorView& block, Handling how);

// Copies the chunk that has arrived to its place, and releases it. `is_last`: of the shard.
void take_block(Lanes& lanes, const Route& from, const TensorView& place, Handling how,
                bool is_last);

// The copies alone. A block that is large has no gaps between its rows.
void copy_to_slot(std::byte* slot, const ConstTensorView& block, Handling how);
void copy_from_slot(const std::byte* slot, const TensorView& place, Handling how);

// Copies an answer, or a chunk, to its place.
void take_copy(Lanes& lanes, const std::byte* from, const TensorView& place, Handling how,
               bool is_last);

}  // namespace plait::comm
