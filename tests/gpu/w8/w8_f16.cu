// Products of f16 rows and 8-bit weights: every tile, every group size.
#include "gpu/w8/w8_launch.cuh"

namespace plait::gpu::w8 {

template cudaError_t launch_tile<__half>(int tile, int group, const Launch& launch,
                                         cudaStream_t stream);

}  // namespace plait::gpu::w8
