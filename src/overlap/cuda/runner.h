// One rank's calls on a GPU, in any schedule: which kernels run, in which order, in which streams.
#pragma once

#include <cuda_runtime_api.h>

#include "overlap/cuda/launch.h"

namespace plait::overlap::cuda {

enum class DeviceOperator { matmul, matmul_all_reduce, matmul_reduce_scatter, all_gather_matmul };

struct DeviceProblem {
  DeviceOperator op;
  int m;  // rows of all ranks together
  int n;
  int k;
  int element;  // a Kind, as are wire and out
  Layout layout;
  int wire;
  int out;
};

// Addresses in the GPU's memory, and elements from row to row.
struct DeviceOperands {
  const void* x;
  long long x_stride;
  const void* weight;
  long long weight_stride;
  void* out;
  long long out_stride;
  Bias bias = {};
  void* gathered = nullptr;
  long long gathered_stride = 0;
};

enum class DeviceSchedule { serial, pipelined, fused };

struct DevicePlan {
  DeviceSchedule schedule = DeviceSchedule::fused;
  int parts = 4;
  int group = 0;  // units of rows multiplied side by side; 0: as many as suit the peers
  Share share = {.blocks = 1 << 16};
};

// The memory that calls of this size, and smaller ones, need at every rank. Flags and slots exist
// twice, for calls with even and with odd numbers.
struct MailboxNeeds {
  long long flags = 0;
  long long bytes = 0;   // of slots
  long long staged = 0;  // bytes that only the rank itself sees
};
MailboxNeeds needs_of(const DeviceProblem& problem, int world);

// A rank's view of the mailbox, which has the same sizes at every rank.
struct DeviceMailbox {
  char* base[kMostRanks];  // by rank: flags, then slots
  // Flags and bytes of slots for calls of one parity. Where the other half begins must not depend
  // on a call's sizes: a rank may write into it while another still reads what an earlier, smaller
  // call has left.
  long long flags;
  long long bytes;
  char* staged;
  comm::cuda::Waits waits;
  Counters* counters;  // in the GPU's memory
  const void* zeros;   // 16 bytes, read in place of matrices without elements
  comm::cuda::EmulatedLink link = {};
  cudaStream_t side;  // for work beside the product
  cudaEvent_t fork;
  cudaEvent_t join;

  static constexpr long long kBegan = 64;  // flags by which ranks tell that a call has begun
};

// Bytes of each rank's memory.
long long mailbox_bytes(const MailboxNeeds& needs);

// A rank among others.
struct DeviceRank {
  int rank;
  int world;
};

cudaError_t run(const DeviceProblem& problem, const DeviceOperands& operands,
                const DevicePlan& plan, DeviceRank rank, const DeviceMailbox& mailbox,
                unsigned int fingerprint, cudaStream_t stream);

}  // namespace plait::overlap::cuda
