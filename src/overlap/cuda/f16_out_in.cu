#include "overlap/cuda/kernels.cuh"

namespace plait::overlap::cuda {

const KernelSet kF16OutIn = Kernels<cutlass::half_t, gemm::OutIn>::set();

}  // namespace plait::overlap::cuda
