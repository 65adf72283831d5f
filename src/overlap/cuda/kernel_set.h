// The kernels that multiply matrices of one kind. Compiling those of a dtype takes minutes, so
// each dtype has a file of its own.
#pragma once

#include <cuda_runtime_api.h>

#include "overlap/cuda/launch.h"

namespace plait::overlap::cuda {

struct KernelSet {
  cudaError_t (*compute_first)(const Matrices&, const Share&, const ComputeFirstArgs&,
                               cudaStream_t);
  cudaError_t (*comm_first)(const Matrices&, const Share&, const CommFirstArgs&, cudaStream_t);
  cudaError_t (*load)();
};

extern const KernelSet kBf16OutIn;
extern const KernelSet kBf16InOut;
extern const KernelSet kF16OutIn;
extern const KernelSet kF16InOut;

// Loads a kernel now. Otherwise its first launch loads it, which can wait until the GPU is idle. If
// a kernel of another rank runs there and waits for this launch, neither would ever go on.
inline cudaError_t load_kernel(const void* kernel) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel);
}

// Loads the kernels of steps.cu.
cudaError_t load_steps();

}  // namespace plait::overlap::cuda
