// What the operators' kernels are told, as plain values that CPU code fills in.
#pragma once

#include "comm/cuda/signals.h"
#include "overlap/cuda/tile_order.h"

namespace plait::overlap::cuda {

// Ranks of one communicator on GPUs: a kernel keeps an address of each.
inline constexpr int kMostRanks = 8;

enum Kind { kF32 = 0, kBf16 = 1, kF16 = 2 };

// Added to every row; no values: none.
struct Bias {
  const void* values = nullptr;
  int kind = kF32;
};

// Where rows are written. All of them begin at multiples of 16 bytes where `aligned`.
struct Rows {
  char* data;
  long long stride;  // bytes from row to row
  int n;             // elements of a row
  bool aligned;
};

// Slots and flags of one kind, at every rank. A source's part has one slot for each tile that holds
// rows of the owner. Both exist twice, for calls of even and odd numbers.
struct Slots {
  char* data[kMostRanks];
  comm::cuda::Flag* flags[kMostRanks];  // [parity][source][tile]; null: nothing is raised
  long long parity_bytes;
  long long source_bytes;
  int parity_flags;
  int source_flags;
};

// What every kernel of a call knows.
struct CallArgs {
  Shards shards;
  int rank;
  int n;
  TileOrder order;
  unsigned int fingerprint;
  comm::cuda::Waits waits;
  comm::cuda::EmulatedLink link;
  int out_kind;
  Rows out;
  Bias bias;
};

// matmul_reduce_scatter and matmul_all_reduce.
struct ComputeFirstArgs {
  CallArgs call;
  int tile_columns;  // tiles side by side in the whole matrix
  int wire;          // a Kind
  Slots sums;
  unsigned int* claims;  // the next piece of work for warps; null: they share it evenly
  bool finishes;         // the product's kernel adds up too
  // matmul_all_reduce: finished rows go to all ranks, with a flag for each slice of a tile of the
  // rank that has finished them.
  bool spreads;
  Slots results;
  long long results_stride;
};

// all_gather_matmul, and a product alone.
struct CommFirstArgs {
  CallArgs call;
  // This rank's rows, and where all rows come together, without gaps.
  const char* x;
  long long x_stride;   // bytes
  int row_bytes;        // a multiple of 16
  bool pushes;          // this kernel sends the rows; else they have been sent
  bool pushes_to_self;  // tiles with rows of several ranks are read from the gathered rows
  bool reads_own;       // tiles of own rows alone are read where the caller has them
  int piece_rows;       // rows under one flag
  Slots gathered;
};

}  // namespace plait::overlap::cuda
