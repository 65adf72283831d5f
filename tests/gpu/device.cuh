// Memory, events and checked calls for the programs in tests/gpu, which stand alone: they link
// cudart and nothing else of CUDA.
//
//   DeviceBuffer<__nv_bfloat16> x(m * k);
//   check_cuda(cudaMemsetAsync(x.data(), 0, x.bytes(), stream));
//   std::vector<float> host = out.to_host();
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <source_location>
#include <vector>

namespace plait::gpu {

// Ends the program with the file, the line and CUDA's own sentence if `status` is a failure. After
// one, no result of the program would mean anything.
inline void check_cuda(cudaError_t status,
                       std::source_location where = std::source_location::current()) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s:%d: %s\n", where.file_name(), static_cast<int>(where.line()),
               cudaGetErrorString(status));
  std::exit(2);
}

// Reports a kernel that could not be launched.
inline void check_launch(std::source_location where = std::source_location::current()) {
  check_cuda(cudaGetLastError(), where);
}

// Owns device memory for `count` elements. The contents start undefined.
template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::int64_t count) : count_(count) {
    T* data = nullptr;
    check_cuda(cudaMalloc(&data, bytes()));
    data_.reset(data);
  }

  T* data() const { return data_.get(); }
  std::int64_t count() const { return count_; }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * sizeof(T); }

  // Fills every byte with `value`. With 0xff every float is a NaN, so that an element that no
  // kernel wrote is found.
  void fill_bytes(int value, cudaStream_t stream = nullptr) {
    check_cuda(cudaMemsetAsync(data(), value, bytes(), stream));
  }

  // Waits for all work on the device, then copies.
  std::vector<T> to_host() const {
    std::vector<T> host(static_cast<std::size_t>(count_));
    check_cuda(cudaDeviceSynchronize());
    check_cuda(cudaMemcpy(host.data(), data(), bytes(), cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  struct Free {
    void operator()(T* data) const { cudaFree(data); }
  };

  std::unique_ptr<T, Free> data_;
  std::int64_t count_ = 0;
};

class Event {
 public:
  Event() {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreate(&event));
    event_.reset(event);
  }

  cudaEvent_t get() const { return event_.get(); }

  void record(cudaStream_t stream) { check_cuda(cudaEventRecord(event_.get(), stream)); }

  double microseconds_since(const Event& begin) const {
    check_cuda(cudaEventSynchronize(event_.get()));
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin.event_.get(), event_.get()));
    return 1000.0 * static_cast<double>(milliseconds);
  }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };

  std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy> event_;
};

class Stream {
 public:
  Stream() {
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    stream_.reset(stream);
  }

  cudaStream_t get() const { return stream_.get(); }
  void synchronize() const { check_cuda(cudaStreamSynchronize(get())); }

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };

  std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy> stream_;
};

}  // namespace plait::gpu
