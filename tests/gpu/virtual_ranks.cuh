// Several ranks on one GPU: each has its own mailbox, stream and share of the multiprocessors.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <vector>

#include "gpu/device.cuh"
#include "overlap/cuda/runner.h"

namespace plait::gpu {

namespace cuda = plait::overlap::cuda;
using plait::comm::cuda::Flag;
using plait::comm::cuda::Record;

enum class SlotMemory { device, pinned_host };

class VirtualRanks {
 public:
  VirtualRanks(int world, const cuda::MailboxNeeds& needs, SlotMemory where = SlotMemory::device,
               unsigned long long timeout = 5'000'000'000ULL)
      : world_(world), needs_(needs), where_(where), streams_(world), sides_(world) {
    for (int r = 0; r < world; ++r) {
      const auto bytes = static_cast<std::size_t>(cuda::mailbox_bytes(needs));
      bases_.push_back(where == SlotMemory::device ? device_memory(bytes) : host_memory(bytes));
      check_cuda(cudaMemset(bases_.back(), 0, bytes));
      staged_.emplace_back(std::max(needs.staged, 16LL));
      words_.emplace_back(64);
      words_.back().fill_bytes(0);
      clocks_.emplace_back(cuda::kMostRanks);
      clocks_.back().fill_bytes(0);
      Record* record = nullptr;
      check_cuda(
          cudaHostAlloc(reinterpret_cast<void**>(&record), sizeof(Record), cudaHostAllocMapped));
      std::memset(record, 0, sizeof(Record));
      records_.push_back(record);
      auto& mailbox = mailboxes_.emplace_back();
      mailbox.flags = needs.flags;
      mailbox.bytes = needs.bytes;
      mailbox.staged = staged_.back().data();
      mailbox.waits = {.record = record,
                       .gave_up = words_.back().data(),
                       .epoch = words_.back().data() + 1,
                       .timeout = timeout};
      mailbox.counters = reinterpret_cast<cuda::Counters*>(words_.back().data() + 2);
      mailbox.zeros = words_.back().data() + 32;
      mailbox.side = sides_[static_cast<std::size_t>(r)].get();
      check_cuda(cudaEventCreateWithFlags(&mailbox.fork, cudaEventDisableTiming));
      check_cuda(cudaEventCreateWithFlags(&mailbox.join, cudaEventDisableTiming));
    }
    for (auto& mailbox : mailboxes_)
      for (int r = 0; r < world; ++r) mailbox.base[r] = bases_[static_cast<std::size_t>(r)];
    check_cuda(cudaDeviceSynchronize());
  }
  VirtualRanks(const VirtualRanks&) = delete;
  VirtualRanks& operator=(const VirtualRanks&) = delete;
  ~VirtualRanks() {
    for (char* base : bases_) where_ == SlotMemory::device ? cudaFree(base) : cudaFreeHost(base);
    for (Record* record : records_) cudaFreeHost(record);
    for (auto& mailbox : mailboxes_) {
      cudaEventDestroy(mailbox.fork);
      cudaEventDestroy(mailbox.join);
    }
  }

  int world() const { return world_; }
  cudaStream_t stream(int rank) const { return streams_[static_cast<std::size_t>(rank)].get(); }
  cuda::DeviceMailbox& mailbox(int rank) { return mailboxes_[static_cast<std::size_t>(rank)]; }
  Record& record(int rank) { return *records_[static_cast<std::size_t>(rank)]; }

  // Sets every byte of the slots to 0xff, so that data which no rank has sent shows up in a result.
  void poison() {
    const auto flags = static_cast<std::size_t>(cuda::mailbox_bytes({.flags = needs_.flags}));
    for (int r = 0; r < world_; ++r) {
      check_cuda(cudaMemset(bases_[static_cast<std::size_t>(r)] + flags, 0xff,
                            static_cast<std::size_t>(2 * needs_.bytes)));
      staged_[static_cast<std::size_t>(r)].fill_bytes(0xff);
    }
    check_cuda(cudaDeviceSynchronize());
  }

  // Raises all flags of this rank for all later calls, so that it waits for nothing.
  void raise_all(int rank) {
    const auto count = static_cast<std::size_t>(cuda::DeviceMailbox::kBegan + 2 * needs_.flags);
    const std::vector<Flag> raised(count, Flag{.word = 0x40000000ULL, .ready_at = 0});
    check_cuda(cudaMemcpy(bases_[static_cast<std::size_t>(rank)], raised.data(),
                          count * sizeof(Flag), cudaMemcpyDefault));
  }

  void emulate_link(float nanoseconds_per_byte, unsigned int latency) {
    for (int r = 0; r < world_; ++r)
      mailbox(r).link = {.clocks = clocks_[static_cast<std::size_t>(r)].data(),
                         .nanoseconds_per_byte = nanoseconds_per_byte,
                         .latency = latency};
  }
  void remove_link() {
    for (int r = 0; r < world_; ++r) mailbox(r).link = {};
  }

  // The rank whose wait gave up, or -1.
  int gave_up() const {
    for (int r = 0; r < world_; ++r)
      if (records_[static_cast<std::size_t>(r)]->trouble != 0) return r;
    return -1;
  }

 private:
  static char* device_memory(std::size_t bytes) {
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, bytes));
    return static_cast<char*>(memory);
  }
  static char* host_memory(std::size_t bytes) {
    void* memory = nullptr;
    check_cuda(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
    return static_cast<char*>(memory);
  }

  int world_;
  cuda::MailboxNeeds needs_;
  SlotMemory where_;
  std::vector<Stream> streams_;
  std::vector<Stream> sides_;
  std::vector<char*> bases_;
  std::vector<DeviceBuffer<char>> staged_;
  std::vector<DeviceBuffer<unsigned int>> words_;
  std::vector<DeviceBuffer<plait::comm::cuda::LinkClock>> clocks_;
  std::vector<Record*> records_;
  std::vector<cuda::DeviceMailbox> mailboxes_;
};

}  // namespace plait::gpu
