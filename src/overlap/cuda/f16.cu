#include "overlap/cuda/kernels.cuh"

namespace plait::overlap::cuda {

const KernelSet kF16OutIn = Kernels<cutlass::half_t, gemm::OutIn>::set();
const KernelSet kF16InOut = Kernels<cutlass::half_t, gemm::InOut>::set();

}  // namespace plait::overlap::cuda
