// Arguments of the operators' kernels: plain values, which CPU code fills in.
#pragma once

#include "comm/cuda/signals.h"
#include "overlap/cuda/tile_order.h"
#include "overlap/cuda/work_order.h"

namespace plait::overlap::cuda {

// NOLINTNEXTLINE(readability-identifier-naming): they are constants of the namespace, kept in ints
enum Kind { kF32 = 0, kBf16 = 1, kF16 = 2 };

// A row that is added to every row of the result. Without values there is none.
struct Bias {
  const void* values = nullptr;
  int kind = kF32;
};

// A matrix in a GPU's memory. If `aligned`, all its rows begin at multiples of 16 bytes.
struct Rows {
  char* data;
  long long stride;  // bytes from row to row
  int n;             // elements of a row
  bool aligned;
};

// Slots and flags of one kind, at every rank. Each source has a slot in each place: a tile that
// holds rows of the owner. Both exist twice, for calls with even and with odd numbers.
struct Slots {
  char* data[kMostRanks];
  comm::cuda::Flag* flags[kMostRanks];  // null: nothing is raised
  // From one to the next.
  long long parity_bytes;
  long long place_bytes;
  long long source_bytes;
  int parity_flags;
  int place_flags;
  int source_flags;
};

// Words in the GPU's memory with which the blocks of a rank count. They are 0 at first.
struct Counters {
  unsigned int claims[2];  // the next piece of work for warps, in calls with even and odd numbers
  unsigned int started;    // blocks of the kernel that begins a call
};

// Arguments that all kernels of a call have.
struct CallArgs {
  Shards shards;
  int rank;
  bool begins;  // the kernel begins the call; otherwise an earlier one has
  Counters* counters;
  comm::cuda::Flag* began[kMostRanks];  // at every rank: a flag for each rank
  int n;
  TileOrder order;
  unsigned int fingerprint;
  comm::cuda::Waits waits;
  comm::cuda::EmulatedLink link;
  int out_kind;
  Rows out;
  Bias bias;
};

// Arguments for matmul_reduce_scatter and matmul_all_reduce.
struct ComputeFirstArgs {
  CallArgs call;
  WorkOrder work;
  int own_begin;  // rows
  int own_end;
  int tile_columns;  // tiles side by side in the whole matrix
  int wire;          // a Kind
  Slots sums;
  bool claims;    // warps claim pieces of work; otherwise they share them evenly
  bool finishes;  // the product's kernel adds up too
  // matmul_all_reduce: finished rows go to all ranks, with a flag for each piece of a tile of the
  // rank that has finished them.
  bool spreads;
  Slots results;
  long long results_stride;
};

// Arguments for all_gather_matmul, and for a product alone.
struct CommFirstArgs {
  CallArgs call;
  // This rank's rows.
  const char* x;
  long long x_stride;   // bytes
  int row_bytes;        // a multiple of 16
  bool pushes;          // this kernel sends the rows; otherwise an earlier one has
  bool pushes_to_self;  // own rows are gathered too: a tile or the caller needs them there
  bool reads_own;       // tiles of own rows alone are read where the caller has them
  int piece_rows;       // rows under one flag
  Slots gathered;       // the rows of all ranks, without gaps
  int width;            // columns of a tile
};

}  // namespace plait::overlap::cuda
