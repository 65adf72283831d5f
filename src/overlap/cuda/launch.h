// Starts the kernels of the operators. Every function queues work in a stream and returns.
#pragma once

#include <cuda_runtime_api.h>

#include "overlap/cuda/args.h"

namespace plait::overlap::cuda {

enum class Layout { out_in, in_out };

// The matrices of a product, in elements of 16 bits. x[i] is where row 0 would be. What is read
// beyond the rows and columns in memory is 0; k is not 0.
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

// How much of the GPU a kernel takes: at most so many blocks, and no more than fit at once.
struct Share {
  int blocks;
};

// Rows and columns of a tile, and rows of what a cluster of blocks multiplies at once.
inline constexpr int kTileRows = 128;
inline constexpr int kTileColumns = 256;
inline constexpr int kUnitRows = 256;

cudaError_t launch_compute_first(const Matrices& matrices, const Share& share,
                                 const ComputeFirstArgs& args, cudaStream_t stream);
cudaError_t launch_comm_first(const Matrices& matrices, const Share& share,
                              const CommFirstArgs& args, cudaStream_t stream);

// The steps of the other schedules: tiles from the own slots `staged` to their owners' ...
cudaError_t launch_exchange(const Matrices& matrices, const Share& share,
                            const ComputeFirstArgs& args, const char* staged, cudaStream_t stream);
// ... adding up what has come, and fetching what other ranks have added up.
cudaError_t launch_work(const Matrices& matrices, const Share& share, const ComputeFirstArgs& args,
                        cudaStream_t stream);
// This rank's rows to all ranks, and a wait for all of theirs.
cudaError_t launch_push(const Matrices& matrices, const Share& share, const CommFirstArgs& args,
                        cudaStream_t stream);
cudaError_t launch_wait_for_rows(const Matrices& matrices, const CommFirstArgs& args,
                                 cudaStream_t stream);

// All rows, once they are there, to a matrix of the caller's.
cudaError_t launch_copy_gathered(const Matrices& matrices, const CommFirstArgs& args, char* to,
                                 long long stride_bytes, cudaStream_t stream);

// Loads all kernels, which no launch may have to do while a rank waits for another.
cudaError_t load_kernels();

// Begins a call: counts it, tells the peers, and waits until all have finished the call before the
// last, whose slots this one writes again.
struct Beginning {
  comm::cuda::Waits waits;
  unsigned int* claims;
  unsigned int fingerprint;
  int rank;
  int world;
  comm::cuda::Flag* began[kMostRanks];  // at every rank: a flag for each rank
};
cudaError_t launch_begin(const Beginning& beginning, cudaStream_t stream);

}  // namespace plait::overlap::cuda
