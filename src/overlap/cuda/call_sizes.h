// The sizes of one call's slots, the same on every rank.
#pragma once

#include "overlap/cuda/runner.h"

namespace plait::overlap::cuda {

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }
inline int size_of_kind(int kind) { return kind == kF32 ? 4 : 2; }

struct CallSizes {
  int tile_columns;
  int tiles_per_source;  // of the rank with the most
  long long tile_bytes;
  int pieces;  // of the rank with the most
  int piece_rows;
  long long results_stride;  // bytes
};

CallSizes sizes_of(const DeviceProblem& problem, int world);

// Columns of the tiles with which this many clusters of blocks finish n columns of units of rows
// soonest.
int tile_width(int units, int n, int clusters);

// Bytes of a mailbox's flags: the began flags, and `flags` for calls of each parity. Slots follow.
long long bytes_of_flags(long long flags);

}  // namespace plait::overlap::cuda
