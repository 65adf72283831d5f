// A rank with a matrix of 101 columns that is cut into narrow parts, for the tests of single flows.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "overlap/lanes.h"

namespace plait::overlap {

inline constexpr std::int64_t kColumns = 101;  // 15 chunks, of which a peer's slots hold 8

// A whole number, which is added up exactly.
inline float value_of(std::int64_t row, std::int64_t column) {
  return static_cast<float>(1000 * row + column);
}

// Ranks fall behind in turns.
inline void fall_behind(int rank, std::size_t part) {
  if ((static_cast<std::size_t>(rank) + part) % 3 == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
}

struct RankLanes {
  RankLanes(Communicator& comm, std::int64_t rows)
      : lanes(comm, narrow_parts(rows, kColumns, comm.world())),
        owned(Ownership::sharded(rows, kColumns, comm.world())
                  .of_rank[static_cast<std::size_t>(comm.rank())]) {}

  Lanes lanes;
  Range owned;  // the rows that are this rank's
};

}  // namespace plait::overlap
