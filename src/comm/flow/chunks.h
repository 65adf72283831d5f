// How the collectives cut a vector, which has a shard for each rank, into chunks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "comm/flow/blocks.h"
#include "plait/dtype.h"
#include "plait/mailbox.h"

namespace plait::comm {

// A chunk is as large as hides what it costs to hand one over (0.2 µs where memory is shared), and
// small enough that a rank sums one while the next is on its way.
inline constexpr std::size_t kChunkBytes = 32 * 1024;
inline constexpr std::size_t kLeastChunkBytes = 4 * 1024;

// See Lanes::Shape.
inline constexpr std::uint32_t kSlotsPerLane = 8;

// The room of a rank for the chunks of all others together. In a very large world it is one chunk
// from each.
inline constexpr std::size_t kReceivedBytes = std::size_t{16} << 20;

// A stream of at least so many bytes does not stay in a core's cache: its chunks are written past
// the cache and evict nothing.
inline constexpr std::size_t kLargeStreamBytes = std::size_t{1} << 19;

// On modelled ranks, shorter streams have real contents: ranks exchange what they need to know.
inline constexpr std::size_t kLeastSimulatedBytes = std::size_t{1} << 12;

// How large chunks are and through how many slots each lane's go; the same on all ranks of a world.
struct LaneCapacity {
  std::size_t chunk_bytes = kChunkBytes;
  std::uint32_t per_lane = kSlotsPerLane;  // a power of two

  MailboxDesc mailbox() const {
    return {.slots = static_cast<int>(2 * per_lane), .slot_bytes = chunk_bytes};
  }
};

// Full up to 16 ranks; in larger worlds chunks are smaller, and then slots fewer.
LaneCapacity lane_capacity_for(int world);

// Elements [0, count) in pieces of a chunk each. Even nothing is one chunk: ranks that disagree
// about whether there is something would not notice otherwise.
class Pieces {
 public:
  // `widest`: the widest dtype in which the elements travel. They are the same chunk in each.
  Pieces(std::size_t count, Dtype widest, const LaneCapacity& capacity)
      : count_(count),
        per_chunk_(chunk_bytes(count * size_of(widest), capacity.chunk_bytes) / size_of(widest)),
        chunks_(count == 0 ? 1
                           : static_cast<std::uint32_t>((count + per_chunk_ - 1) / per_chunk_)) {}

  std::uint32_t chunks() const { return chunks_; }
  std::size_t offset(std::uint32_t chunk) const { return chunk * per_chunk_; }  // in elements
  std::size_t count(std::uint32_t chunk) const {
    const std::size_t left = count_ - offset(chunk);
    return left < per_chunk_ ? left : per_chunk_;
  }

  // How the elements are copied, if this is their dtype.
  Handling handling(Dtype dtype) const {
    const std::size_t bytes = count_ * size_of(dtype);
    return {.is_large = bytes >= kLargeStreamBytes, .must_be_done = bytes < kLeastSimulatedBytes};
  }

 private:
  // Two chunks at least, where they are not too small: the first is summed while the second comes.
  static std::size_t chunk_bytes(std::size_t bytes, std::size_t most) {
    const std::size_t half = (bytes / 2 + kLeastChunkBytes - 1) / kLeastChunkBytes;
    return std::clamp(half * kLeastChunkBytes, kLeastChunkBytes, most);
  }

  std::size_t count_;
  std::size_t per_chunk_;
  std::uint32_t chunks_;
};

}  // namespace plait::comm
