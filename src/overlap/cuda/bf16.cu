#include "overlap/cuda/kernels.cuh"

namespace plait::overlap::cuda {

const KernelSet kBf16OutIn = Kernels<cutlass::bfloat16_t, gemm::OutIn>::set();
const KernelSet kBf16InOut = Kernels<cutlass::bfloat16_t, gemm::InOut>::set();

}  // namespace plait::overlap::cuda
