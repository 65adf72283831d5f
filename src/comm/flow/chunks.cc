#include "comm/flow/chunks.h"

namespace plait::comm {

// world 2 → 8 slots of 32 KiB a lane; 64 → 8 of 8 KiB; 256 → 4 of 4 KiB
LaneCapacity lane_capacity_for(int world) {
  LaneCapacity capacity;
  const auto received = [&] {
    return capacity.chunk_bytes * capacity.per_lane * 2 /*lanes*/ * 2 /*epochs*/ *
           static_cast<std::size_t>(world);
  };
  while (capacity.chunk_bytes > kLeastChunkBytes && received() > kReceivedBytes)
    capacity.chunk_bytes /= 2;
  while (capacity.per_lane > 1 && received() > kReceivedBytes) capacity.per_lane /= 2;
  return capacity;
}

}  // namespace plait::comm
