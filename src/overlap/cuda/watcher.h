// Ends the waits of a rank's kernels when a peer's process has ended, or its group has failed. A
// kernel can't see either, and no thread of the rank need be in a call meanwhile. The kernels poll
// a word in the GPU's own memory: polling over the bus would hold up the flags that they raise.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "comm/core/group.h"
#include "comm/cuda/signals.h"

namespace plait::overlap::cuda {

class Watcher {
 public:
  // `processes` are those of all ranks. Group and record must outlive this.
  Watcher(const comm::Group& group, const std::vector<std::int64_t>& processes,
          const comm::cuda::Waits& waits);
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  ~Watcher();

 private:
  void watch();
  void end_waits(int lost);

  const comm::Group& group_;
  comm::cuda::Waits waits_;
  int device_ = 0;
  std::vector<int> peers_;        // ranks of other processes ...
  std::vector<int> descriptors_;  // ... and a descriptor for each, readable when it has ended
  bool has_ended_waits_ = false;  // used by the thread alone
  // Memory ordering: relaxed, because it publishes no other data.
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace plait::overlap::cuda
