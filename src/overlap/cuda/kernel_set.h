// The kernels of one kind of matrices. Each kind has a file of its own, because compiling it takes
// a minute.
#pragma once

#include <cuda_runtime_api.h>

#include "overlap/cuda/launch.h"

namespace plait::overlap::cuda {

struct KernelSet {
  cudaError_t (*compute_first)(const Matrices&, const Share&, const ComputeFirstArgs&,
                               cudaStream_t);
  cudaError_t (*comm_first)(const Matrices&, const Share&, const CommFirstArgs&, cudaStream_t);
  cudaError_t (*exchange)(const Share&, const ComputeFirstArgs&, const char* staged, cudaStream_t);
  cudaError_t (*work)(const Share&, const ComputeFirstArgs&, cudaStream_t);
  cudaError_t (*push)(const Share&, const CommFirstArgs&, cudaStream_t);
  cudaError_t (*wait_for_rows)(const CommFirstArgs&, cudaStream_t);
  cudaError_t (*load)();
};

extern const KernelSet kBf16OutIn;
extern const KernelSet kBf16InOut;
extern const KernelSet kF16OutIn;
extern const KernelSet kF16InOut;

}  // namespace plait::overlap::cuda
