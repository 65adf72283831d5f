#include "comm/collectives/chunks.h"

namespace plait::comm {

// world 2 → 8 slots of 32 KiB a lane; 64 → 8 of 8 KiB; 256 → 4 of 4 KiB
Room room_for(int world) {
  Room room;
  const auto received = [&] {
    return room.chunk_bytes * room.per_lane * 2 /*lanes*/ * 2 /*epochs*/ *
           static_cast<std::size_t>(world);
  };
  while (room.chunk_bytes > kLeastChunkBytes && received() > kReceivedBytes) room.chunk_bytes /= 2;
  while (room.per_lane > 1 && received() > kReceivedBytes) room.per_lane /= 2;
  return room;
}

}  // namespace plait::comm
