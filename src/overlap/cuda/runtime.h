// CUDA's runtime for the operators: its errors, the current device, and owners of what it makes.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string_view>
#include <type_traits>

#include "comm/cuda/signals.h"

namespace plait::overlap::cuda {

// Throws Error{system} in the words of `caller` if CUDA has failed.
void check_cuda(cudaError_t status, std::string_view caller);

// Makes the device the thread's current one, and the former one again at the end.
class OnGpu {
 public:
  explicit OnGpu(int index);
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  ~OnGpu();

 private:
  int before_ = 0;
};

namespace detail {

struct Destroy {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  void operator()(comm::cuda::Record* record) const { cudaFreeHost(record); }
};

}  // namespace detail

using OwnedStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, detail::Destroy>;
using OwnedEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, detail::Destroy>;
using OwnedRecord = std::unique_ptr<comm::cuda::Record, detail::Destroy>;

// A stream of the current device that does not wait for its default stream.
OwnedStream make_stream(std::string_view caller);

// An event of the current device that measures no time.
OwnedEvent make_event(std::string_view caller);

// A record in memory of the CPU that all GPUs can write to, without a failure in it.
OwnedRecord make_record(std::string_view caller);

}  // namespace plait::overlap::cuda
