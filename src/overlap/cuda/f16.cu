#ifdef PLAIT_CUDA_QUICK
#include "overlap/cuda/kernel_set.h"
#else
#include "overlap/cuda/kernels.cuh"
#endif

namespace plait::overlap::cuda {

#ifdef PLAIT_CUDA_QUICK
// The kernels of bf16 show that the templates compile.
namespace {
template <class... Args>
cudaError_t left_out(Args...) {
  return cudaErrorNotSupported;
}
}  // namespace
const KernelSet kF16OutIn = {left_out, left_out, left_out};
const KernelSet kF16InOut = kF16OutIn;
#else
const KernelSet kF16OutIn = Kernels<cutlass::half_t, gemm::OutIn>::set();
const KernelSet kF16InOut = Kernels<cutlass::half_t, gemm::InOut>::set();
#endif

}  // namespace plait::overlap::cuda
