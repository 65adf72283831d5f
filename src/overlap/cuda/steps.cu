// The steps of the schedules that are not one kernel. They multiply nothing, so one kernel serves
// matrices of any layout.
#include <algorithm>

#include "overlap/cuda/comm_first.cuh"
#include "overlap/cuda/compute_first.cuh"
#include "overlap/cuda/kernel_set.h"

namespace plait::overlap::cuda {
namespace {

constexpr int kStepThreads = 256;

template <class Narrow>
using GeometryOf = gemm::cuda::TileGeometry<Narrow, kTileColumns>;
using AnyGeometry = GeometryOf<Bfloat>;  // for steps to which the elements are bytes
static_assert(AnyGeometry::kRows == kTileRows && AnyGeometry::kUnitRows == kUnitRows);

__global__ void begin_kernel(const __grid_constant__ CallArgs call) {
  const int lane = static_cast<int>(threadIdx.x);
  const unsigned int epoch = epoch_of(call);
  __syncwarp();
  if (lane == 0) count_call(call, epoch);
  announce_call(call, epoch, lane);
  wait_for_peers(call, epoch, lane);
}

// Copies tiles that were multiplied into this rank's own memory to the slots of their owners.
template <class Geometry>
__global__ void __launch_bounds__(kStepThreads)
    exchange_kernel(const __grid_constant__ ComputeFirstArgs args, const char* staged) {
  ComputeFirst<Geometry>(args).exchange(staged);
}

__device__ int warp_of_grid() {
  return static_cast<int>(blockIdx.x * kStepThreads + threadIdx.x) / 32;
}
__device__ int warps_of_grid() { return static_cast<int>(gridDim.x) * kStepThreads / 32; }

// Adds up own rows, and fetches other ranks' finished rows.
template <class Geometry>
__global__ void __launch_bounds__(kStepThreads)
    work_kernel(const __grid_constant__ ComputeFirstArgs args) {
  ComputeFirst<Geometry>(args).work(static_cast<int>(threadIdx.x) % 32, warp_of_grid(),
                                    warps_of_grid());
}

__global__ void __launch_bounds__(kStepThreads)
    push_kernel(const __grid_constant__ CommFirstArgs args) {
  CommFirst<AnyGeometry>(args).push(warp_of_grid(), warps_of_grid(),
                                    static_cast<int>(threadIdx.x) % 32);
}

__global__ void __launch_bounds__(32)
    wait_for_rows_kernel(const __grid_constant__ CommFirstArgs args) {
  CommFirst<AnyGeometry> rows(args);
  for (int step = 0; step < args.call.order.taken; ++step) {
    const int first = args.call.order.unit_at(step) * kUnitRows;
    for (int row = first; row < first + kUnitRows; row += kTileRows)
      rows.before_load(row, static_cast<int>(threadIdx.x));
  }
}

__global__ void __launch_bounds__(kStepThreads)
    copy_gathered_kernel(const __grid_constant__ CommFirstArgs args, char* to, long long stride) {
  const unsigned int epoch = *static_cast<volatile unsigned int*>(args.call.waits.epoch);
  const char* from = args.gathered.data[args.call.rank] + (epoch & 1U) * args.gathered.parity_bytes;
  const int per_row = args.row_bytes / 16;
  for (int row = static_cast<int>(blockIdx.x); row < args.call.shards.m;
       row += static_cast<int>(gridDim.x)) {
    for (int v = static_cast<int>(threadIdx.x); v < per_row; v += kStepThreads) {
      *reinterpret_cast<uint4*>(to + row * stride + v * 16LL) = *reinterpret_cast<const uint4*>(
          from + static_cast<long long>(row) * args.row_bytes + v * 16LL);
    }
  }
}

unsigned int blocks(const Share& share) {
  return static_cast<unsigned int>(std::max(share.blocks, 1));
}

}  // namespace

cudaError_t launch_begin(const CallArgs& call, cudaStream_t stream) {
  begin_kernel<<<1, 32, 0, stream>>>(call);
  return cudaGetLastError();
}

cudaError_t launch_exchange(const Matrices& matrices, const Share& share,
                            const ComputeFirstArgs& args, const char* staged, cudaStream_t stream) {
  const auto kernel = matrices.element == kF16 ? exchange_kernel<GeometryOf<Half>>
                                               : exchange_kernel<GeometryOf<Bfloat>>;
  kernel<<<blocks(share), kStepThreads, 0, stream>>>(args, staged);
  return cudaGetLastError();
}

cudaError_t launch_work(const Matrices& matrices, const Share& share, const ComputeFirstArgs& args,
                        cudaStream_t stream) {
  const auto kernel =
      matrices.element == kF16 ? work_kernel<GeometryOf<Half>> : work_kernel<GeometryOf<Bfloat>>;
  kernel<<<blocks(share), kStepThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

cudaError_t launch_push(const Share& share, const CommFirstArgs& args, cudaStream_t stream) {
  push_kernel<<<blocks(share), kStepThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

cudaError_t launch_wait_for_rows(const CommFirstArgs& args, cudaStream_t stream) {
  wait_for_rows_kernel<<<1, 32, 0, stream>>>(args);
  return cudaGetLastError();
}

cudaError_t launch_copy_gathered(const Matrices& matrices, const CommFirstArgs& args, char* to,
                                 long long stride_bytes, cudaStream_t stream) {
  const int blocks = matrices.m < 64 ? matrices.m : 64;
  if (blocks == 0 || args.row_bytes == 0) return cudaSuccess;
  copy_gathered_kernel<<<static_cast<unsigned int>(blocks), kStepThreads, 0, stream>>>(
      args, to, stride_bytes);
  return cudaGetLastError();
}

cudaError_t load_steps() {
  const void* kernels[] = {reinterpret_cast<const void*>(&begin_kernel),
                           reinterpret_cast<const void*>(&exchange_kernel<GeometryOf<Bfloat>>),
                           reinterpret_cast<const void*>(&exchange_kernel<GeometryOf<Half>>),
                           reinterpret_cast<const void*>(&work_kernel<GeometryOf<Bfloat>>),
                           reinterpret_cast<const void*>(&work_kernel<GeometryOf<Half>>),
                           reinterpret_cast<const void*>(&push_kernel),
                           reinterpret_cast<const void*>(&wait_for_rows_kernel),
                           reinterpret_cast<const void*>(&copy_gathered_kernel)};
  for (const void* kernel : kernels) {
    const cudaError_t status = load_kernel(kernel);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace plait::overlap::cuda
