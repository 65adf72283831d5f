// The ranks of a communicator on GPUs of one host: the memory that they share, and the watcher that
// ends their waits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "overlap/cuda/runner.h"
#include "overlap/cuda/runtime.h"
#include "overlap/cuda/watcher.h"
#include "plait/communicator.h"
#include "plait/tensor_view.h"

namespace plait::overlap::cuda {

class CudaGroup {
 public:
  // The group that the communicator keeps for this device. The first call is collective, except for
  // an `alone` group, which serves operators that don't communicate.
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

  // Makes a larger mailbox if this one is too small, which is collective.
  void make_room(const MailboxNeeds& needs, Communicator& comm, std::string_view caller);

  // Throws the error of a wait that has given up.
  void raise_if_failed(std::string_view caller) const;

  // Make calls in several streams run one after another: order() comes before a call's work is
  // queued, note_queued() after it.
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
  OwnedRecord record_;
  OwnedStream side_;
  OwnedEvent fork_;
  OwnedEvent join_;
  OwnedEvent queued_;  // after the last call
  DeviceMailbox mailbox_ = {};
  cudaStream_t last_ = nullptr;
  bool has_queued_ = false;
  std::unique_ptr<Watcher> watcher_;
};

}  // namespace plait::overlap::cuda
