// In which order a device does what it is given.
//
//   plait::all_reduce(sums, comm, {.handle = cuda_stream});   // behind what the stream holds
//
// A stream is the device's own (a cudaStream_t), and opaque here: plait neither makes nor destroys
// it. A call on a device's memory is queued there and may return before it is done. Memory of the
// CPU takes none: such a call is done when it returns, and one that names a stream is refused.
#pragma once

namespace plait {

struct Stream {
  void* handle = nullptr;

  explicit operator bool() const { return handle != nullptr; }
  bool operator==(const Stream&) const = default;
};

}  // namespace plait
