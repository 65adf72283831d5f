#include "gpu/overlap_cases.cuh"

namespace plait::gpu {
namespace {

__global__ void idle_kernel(unsigned long long nanoseconds) {
  const unsigned long long begin = plait::comm::cuda::gpu_clock();
  while (plait::comm::cuda::gpu_clock() - begin < nanoseconds) __nanosleep(1000);
}

}  // namespace

bool start_gpu() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("there is no GPU");
    return false;
  }
  check_cuda(cuda::load_kernels());
  idle(0, nullptr);
  check_cuda(cudaDeviceSynchronize());
  return true;
}

void idle(unsigned long long nanoseconds, cudaStream_t stream) {
  idle_kernel<<<1, 1, 0, stream>>>(nanoseconds);
  check_launch();
}

}  // namespace plait::gpu
