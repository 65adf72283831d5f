#include "overlap/cuda/launch.h"

#include "overlap/cuda/beginning.cuh"
#include "overlap/cuda/kernel_set.h"

namespace plait::overlap::cuda {
namespace {

const KernelSet& set_of(const Matrices& matrices) {
  const bool out_in = matrices.layout == Layout::out_in;
  if (matrices.element == kF16) return out_in ? kF16OutIn : kF16InOut;
  return out_in ? kBf16OutIn : kBf16InOut;
}

__global__ void begin_kernel(const __grid_constant__ CallArgs call) {
  const int lane = static_cast<int>(threadIdx.x);
  const unsigned int epoch = epoch_of(call);
  __syncwarp();
  if (lane == 0) count_call(call, epoch);
  tell_peers(call, epoch, lane);
  wait_for_peers(call, epoch, lane);
}

__global__ void __launch_bounds__(256)
    copy_gathered_kernel(const __grid_constant__ CommFirstArgs args, char* to, long long stride) {
  const unsigned int epoch = *static_cast<volatile unsigned int*>(args.call.waits.epoch);
  const char* from = args.gathered.data[args.call.rank] + (epoch & 1U) * args.gathered.parity_bytes;
  const int per_row = args.row_bytes / 16;
  for (int row = static_cast<int>(blockIdx.x); row < args.call.shards.m;
       row += static_cast<int>(gridDim.x)) {
    for (int v = static_cast<int>(threadIdx.x); v < per_row; v += 256) {
      *reinterpret_cast<uint4*>(to + row * stride + v * 16LL) = *reinterpret_cast<const uint4*>(
          from + static_cast<long long>(row) * args.row_bytes + v * 16LL);
    }
  }
}

}  // namespace

cudaError_t launch_copy_gathered(const Matrices& matrices, const CommFirstArgs& args, char* to,
                                 long long stride_bytes, cudaStream_t stream) {
  const int blocks = matrices.m < 64 ? matrices.m : 64;
  if (blocks == 0 || args.row_bytes == 0) return cudaSuccess;
  copy_gathered_kernel<<<static_cast<unsigned int>(blocks), 256, 0, stream>>>(args, to,
                                                                              stride_bytes);
  return cudaGetLastError();
}

cudaError_t launch_compute_first(const Matrices& matrices, const Share& share,
                                 const ComputeFirstArgs& args, cudaStream_t stream) {
  return set_of(matrices).compute_first(matrices, share, args, stream);
}
cudaError_t launch_comm_first(const Matrices& matrices, const Share& share,
                              const CommFirstArgs& args, cudaStream_t stream) {
  return set_of(matrices).comm_first(matrices, share, args, stream);
}
cudaError_t launch_exchange(const Matrices& matrices, const Share& share,
                            const ComputeFirstArgs& args, const char* staged, cudaStream_t stream) {
  return set_of(matrices).exchange(share, args, staged, stream);
}
cudaError_t launch_work(const Matrices& matrices, const Share& share, const ComputeFirstArgs& args,
                        cudaStream_t stream) {
  return set_of(matrices).work(share, args, stream);
}
cudaError_t launch_push(const Matrices& matrices, const Share& share, const CommFirstArgs& args,
                        cudaStream_t stream) {
  return set_of(matrices).push(share, args, stream);
}
cudaError_t launch_wait_for_rows(const Matrices& matrices, const CommFirstArgs& args,
                                 cudaStream_t stream) {
  return set_of(matrices).wait_for_rows(args, stream);
}

cudaError_t load_kernels() {
  cudaFuncAttributes attributes;
  for (const void* kernel : {reinterpret_cast<const void*>(&begin_kernel),
                             reinterpret_cast<const void*>(&copy_gathered_kernel)}) {
    const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
    if (status != cudaSuccess) return status;
  }
  for (const KernelSet* set : {&kBf16OutIn, &kBf16InOut, &kF16OutIn, &kF16InOut}) {
    const cudaError_t status = set->load();
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

cudaError_t launch_begin(const CallArgs& call, cudaStream_t stream) {
  begin_kernel<<<1, 32, 0, stream>>>(call);
  return cudaGetLastError();
}

}  // namespace plait::overlap::cuda
