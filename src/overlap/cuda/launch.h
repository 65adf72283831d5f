// Starts the kernels of the operators. Every function queues work in a stream and returns.
#pragma once

#include <cuda_runtime_api.h>

#include "overlap/cuda/args.h"

namespace plait::overlap::cuda {

enum class Layout { out_in, in_out };

// The matrices of a product. Elements have 16 bits, and k is not 0. x[i] is the address at which
// row 0 of the whole matrix would be. Reads beyond the rows and columns in memory give 0.
struct Matrices {
  int element;  // kBf16 or kF16
  Layout layout;
  int m;
  int n;
  int k;
  int rows_in_memory;
  int columns_in_memory;
  const void* x[3];
  long long x_stride[3];  // elements
  const void* weight;
  long long weight_stride;
};

// The part of the GPU that a kernel takes: at most this many blocks, and no more than fit at once.
struct Share {
  int blocks;
};

// Rows and columns of a tile, and rows of what a cluster of blocks multiplies at once.
inline constexpr int kTileRows = 128;
inline constexpr int kTileColumns = 256;
inline constexpr int kUnitRows = 256;

// Tiles whose values stay on their rank can also be narrower, so that the last tiles of a product
// come nearer to filling the GPU.
inline constexpr int kTileWidths[] = {256, 224, 160};

cudaError_t launch_compute_first(const Matrices& matrices, const Share& share,
                                 const ComputeFirstArgs& args, cudaStream_t stream);
cudaError_t launch_comm_first(const Matrices& matrices, const Share& share,
                              const CommFirstArgs& args, cudaStream_t stream);

// The steps of the other schedules. Copies tiles from this rank's own slots, `staged`, to those of
// their owners.
cudaError_t launch_exchange(const Matrices& matrices, const Share& share,
                            const ComputeFirstArgs& args, const char* staged, cudaStream_t stream);
// Adds up the partial sums that have arrived, and fetches rows that other ranks have finished.
cudaError_t launch_work(const Matrices& matrices, const Share& share, const ComputeFirstArgs& args,
                        cudaStream_t stream);
// Sends this rank's rows to all ranks.
cudaError_t launch_push(const Share& share, const CommFirstArgs& args, cudaStream_t stream);
// Waits for the rows of the tiles in `args`.
cudaError_t launch_wait_for_rows(const CommFirstArgs& args, cudaStream_t stream);

// Copies all rows, once they have arrived, to a matrix of the caller's.
cudaError_t launch_copy_gathered(const Matrices& matrices, const CommFirstArgs& args, char* to,
                                 long long stride_bytes, cudaStream_t stream);

// Loads all kernels, so that no launch does it while another rank's kernel waits for this rank.
cudaError_t load_kernels();

// Begins a call whose first kernel doesn't.
cudaError_t launch_begin(const CallArgs& call, cudaStream_t stream);

}  // namespace plait::overlap::cuda
