#include "overlap/cuda/launch.h"

#include "overlap/cuda/kernel_set.h"

namespace plait::overlap::cuda {
namespace {

const KernelSet& set_of(const Matrices& matrices) {
  const bool out_in = matrices.layout == Layout::out_in;
  if (matrices.element == kF16) return out_in ? kF16OutIn : kF16InOut;
  return out_in ? kBf16OutIn : kBf16InOut;
}

}  // namespace

cudaError_t launch_compute_first(const Matrices& matrices, const Share& share,
                                 const ComputeFirstArgs& args, cudaStream_t stream) {
  return set_of(matrices).compute_first(matrices, share, args, stream);
}
cudaError_t launch_comm_first(const Matrices& matrices, const Share& share,
                              const CommFirstArgs& args, cudaStream_t stream) {
  return set_of(matrices).comm_first(matrices, share, args, stream);
}

cudaError_t load_kernels() {
  const KernelSet* const sets[] = {&kBf16OutIn, &kBf16InOut, &kF16OutIn, &kF16InOut};
  for (const KernelSet* set : sets) {
    const cudaError_t status = set->load();
    if (status != cudaSuccess) return status;
  }
  return load_steps();
}

}  // namespace plait::overlap::cuda
