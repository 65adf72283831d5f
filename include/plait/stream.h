// The order in which a device does its work.
//
//   plait::all_reduce(sums, comm, {.handle = cuda_stream});   // behind what the stream holds
//
// A stream is the device's own (a cudaStream_t), and opaque here: plait neither makes nor destroys
// it. A call on a device's memory is queued in the stream and may return before it is done. A call
// on the CPU's memory is done when it returns, and is refused if it names a stream.
#pragma once

namespace plait {

struct Stream {
  void* handle = nullptr;

  explicit operator bool() const { return handle != nullptr; }
  bool operator==(const Stream&) const = default;
};

}  // namespace plait
