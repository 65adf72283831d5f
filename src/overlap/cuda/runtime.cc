#include "overlap/cuda/runtime.h"

#include <cuda_runtime.h>

#include <cstring>

#include "base/check.h"

namespace plait::overlap::cuda {

void check_cuda(cudaError_t status, std::string_view caller) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the sticky error
  base::fail(Code::system, base::sentence(caller, ": CUDA: ", cudaGetErrorString(status)));
}

OnGpu::OnGpu(int index) {
  cudaGetDevice(&before_);
  if (before_ != index) check_cuda(cudaSetDevice(index), "a call on a GPU");
}

OnGpu::~OnGpu() { cudaSetDevice(before_); }

OwnedStream make_stream(std::string_view caller) {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), caller);
  return OwnedStream(stream);
}

OwnedEvent make_event(std::string_view caller) {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), caller);
  return OwnedEvent(event);
}

OwnedRecord make_record(std::string_view caller) {
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, sizeof(comm::cuda::Record), cudaHostAllocPortable), caller);
  OwnedRecord record(static_cast<comm::cuda::Record*>(memory));
  std::memset(record.get(), 0, sizeof(*record));
  return record;
}

}  // namespace plait::overlap::cuda
