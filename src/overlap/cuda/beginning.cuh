// How a call begins: it is counted, peers are told, and their slots must be free.
#pragma once

#include "comm/cuda/signals.h"
#include "overlap/cuda/args.h"

namespace plait::overlap::cuda {

// The number of the call. A call that exchanges nothing has none.
__device__ inline unsigned int epoch_of(const CallArgs& call) {
  if (call.waits.epoch == nullptr) return 0;
  return *static_cast<volatile unsigned int*>(call.waits.epoch) + (call.begins ? 1 : 0);
}

// Called by one thread of each block of the kernel that begins a call, once the block's other
// threads know the number of the call. The last block counts the call: no block then reads too
// large a number.
__device__ inline void count_call(const CallArgs& call, unsigned int epoch) {
  if (!call.begins) return;
  __threadfence();
  if (atomicAdd(&call.counters->started, 1U) + 1 != gridDim.x) return;
  call.counters->started = 0;
  call.counters->claims[(epoch + 1) & 1U] = 0;  // for the next call
  *static_cast<volatile unsigned int*>(call.waits.epoch) = epoch;
}

// Called by a warp: announces to all peers that this rank has begun the call.
__device__ inline void announce_call(const CallArgs& call, unsigned int epoch, int lane) {
  if (lane < call.shards.world && lane != call.rank)
    comm::cuda::raise(call.began[lane] + call.rank, comm::cuda::word_of(call.fingerprint, epoch),
                      0);
}

// Called by a warp: waits until all peers have finished the call before the last, whose slots are
// written again: they have if they have begun the last one.
__device__ inline void wait_for_peers(const CallArgs& call, unsigned int epoch, int lane) {
  if (lane < call.shards.world && lane != call.rank)
    comm::cuda::wait_for_epoch(call.began[call.rank] + lane, epoch - 1, call.waits, lane);
  __syncwarp();
  // Peers have read the slots by ordinary loads, and the copy engine may write them.
  asm volatile("fence.proxy.async;" ::: "memory");
}

}  // namespace plait::overlap::cuda
