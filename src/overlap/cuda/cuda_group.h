// The ranks of a communicator on GPUs of one host: the memory that they share, and what ends their
// waits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "overlap/cuda/runner.h"
#include "overlap/cuda/watcher.h"
#include "plait/communicator.h"
#include "plait/tensor_view.h"

namespace plait::overlap::cuda {

// Throws Error{system} in the words of `caller` if CUDA has failed.
void check_cuda(cudaError_t status, std::string_view caller);

// Makes the device the thread's own for a while.
class OnGpu {
 public:
  explicit OnGpu(int index);
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  ~OnGpu();

 private:
  int before_ = 0;
};

class CudaGroup {
 public:
  // What the communicator keeps for this device. Collective at the first call, but for what is
  // `alone`: operators that don't communicate.
  static std::shared_ptr<CudaGroup> of(Communicator& comm, Device device, bool alone);

  CudaGroup(Communicator& comm, Device device, bool alone);
  CudaGroup(const CudaGroup&) = delete;
  CudaGroup& operator=(const CudaGroup&) = delete;
  ~CudaGroup();

  int device() const { return device_; }
  int rank() const { return rank_; }
  int world() const { return world_; }
  int blocks() const { return blocks_; }  // of this rank's kernels
  const DeviceMailbox& mailbox() const { return mailbox_; }
  std::size_t held_bytes() const;

  // Collective where there is less than is needed.
  void make_room(const MailboxNeeds& needs, Communicator& comm, std::string_view caller);

  // Throws the error of a wait that has given up.
  void raise_if_failed(std::string_view caller) const;

  // Calls in several streams follow one another all the same.
  void order(cudaStream_t stream);
  void note_queued(cudaStream_t stream);

 private:
  class Memory;
  struct Offer;

  void find_peers(Communicator& comm);
  void drop_mailbox(Communicator& comm, std::string_view caller);
  void open(const Offer& offer, int rank, std::string_view caller);

  const comm::Group* group_ = nullptr;
  int device_;
  int rank_;
  int world_;
  int blocks_ = 0;
  std::vector<std::int64_t> processes_;  // of all ranks
  MailboxNeeds room_;
  std::shared_ptr<Memory> own_;
  std::vector<std::shared_ptr<Memory>> of_peers_;  // which are threads of this process
  std::vector<void*> imported_;
  std::shared_ptr<Memory> staged_;
  std::shared_ptr<Memory> words_;
  comm::cuda::Record* record_ = nullptr;
  DeviceMailbox mailbox_ = {};
  cudaEvent_t queued_ = nullptr;
  cudaStream_t last_ = nullptr;
  bool has_queued_ = false;
  std::unique_ptr<Watcher> watcher_;
};

}  // namespace plait::overlap::cuda
