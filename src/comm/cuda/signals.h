// How ranks on GPUs tell one another that data is there.
//
// A flag is a word in the receiver's memory, which the sender raises once its data can be seen. The
// word holds the number of the call (its epoch) and a fingerprint of what the sender believes the
// call to be. A flag also holds the time from which it counts, which emulated links set.
//
// Every wait has a deadline. If it passes, the wait records which rank it waited for, and all other
// waits of the rank give up too: the kernel ends, with undefined results, and the next call on the
// CPU finds the record.
#pragma once

#include <cstdint>

namespace plait::comm::cuda {

struct alignas(16) Flag {
  unsigned long long word;
  unsigned long long ready_at;  // in nanoseconds of the GPU's clock
};

enum class Trouble : unsigned int { none, timeout, mismatch, stopped };

// The record that a wait leaves in the CPU's memory when it gives up.
struct Record {
  unsigned int trouble;
  int peer;
  int place;  // the number of the chunk, or -1: the call's beginning
  unsigned int epoch;
  unsigned long long expected;
  unsigned long long found;
};

// The data with which all kernels of a rank wait for flags.
struct Waits {
  Record* record;              // in the CPU's memory
  unsigned int* gave_up;       // in the GPU's memory; if it is not 0, all waits give up
  unsigned int* epoch;         // in the GPU's memory: the number of the call under way
  unsigned long long timeout;  // in nanoseconds
};

// One direction of an emulated link. Chunks travel one after another.
struct LinkClock {
  unsigned long long free_at;
};
struct EmulatedLink {
  LinkClock* clocks = nullptr;  // by peer; null: none is emulated
  float nanoseconds_per_byte = 0;
  unsigned int latency = 0;  // in nanoseconds
};

#ifdef __CUDACC__

__device__ inline unsigned long long gpu_clock() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ inline unsigned long long load_acquire(const unsigned long long* at) {
  unsigned long long value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}

__device__ inline void store_release(unsigned long long* at, unsigned long long value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

__device__ inline unsigned long long word_of(unsigned int fingerprint, unsigned int epoch) {
  return static_cast<unsigned long long>(fingerprint) << 32 | epoch;
}

// The time at which bytes that leave now arrive at `peer`.
__device__ inline unsigned long long arrival_over(const EmulatedLink& link, int peer,
                                                  unsigned long long bytes) {
  if (link.clocks == nullptr) return 0;
  unsigned long long* free_at = &link.clocks[peer].free_at;
  const auto duration =
      static_cast<unsigned long long>(static_cast<float>(bytes) * link.nanoseconds_per_byte);
  // Not one step but two, which never repeat: if another chunk comes between them, this one only
  // waits for it.
  atomicMax(free_at, gpu_clock());
  return atomicAdd(free_at, duration) + duration + link.latency;
}

// For a flag that only this GPU reads.
__device__ inline void store_release_here(unsigned long long* at, unsigned long long value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

// Raises the flag. What this thread has written, and what others have written before they met it at
// a barrier, can be seen by a thread that finds the flag raised.
__device__ inline void raise(Flag* flag, unsigned long long word, unsigned long long ready_at) {
  *static_cast<volatile unsigned long long*>(&flag->ready_at) = ready_at;
  store_release(&flag->word, word);
}

// Raises a flag of this rank's own.
__device__ inline void raise_here(Flag* flag, unsigned long long word) {
  *static_cast<volatile unsigned long long*>(&flag->ready_at) = 0;
  store_release_here(&flag->word, word);
}

// Ends all waits of this rank. The first record stands.
__device__ inline void give_up(const Waits& waits, Trouble trouble, int peer, int place,
                               unsigned long long expected, unsigned long long found) {
  if (atomicExch(waits.gave_up, 1U) != 0) return;
  volatile Record* record = waits.record;
  record->peer = peer;
  record->place = place;
  record->epoch = static_cast<unsigned int>(expected);
  record->expected = expected;
  record->found = found;
  __threadfence_system();
  record->trouble = static_cast<unsigned int>(trouble);
  __threadfence_system();
}

__device__ inline bool is_newer_or_same(unsigned int epoch, unsigned int than) {
  return static_cast<int>(epoch - than) >= 0;
}

// True if the flag has been raised for this call or a later one, and counts by now.
__device__ inline bool is_raised(const Flag* flag, unsigned long long found,
                                 unsigned long long expected) {
  if (!is_newer_or_same(static_cast<unsigned int>(found), static_cast<unsigned int>(expected)))
    return false;
  const unsigned long long ready_at =
      *static_cast<const volatile unsigned long long*>(&flag->ready_at);
  return ready_at == 0 || gpu_clock() >= ready_at;
}

// A first look at a flag, which many flags can have at once. If all have been raised, an acquire
// must follow before what they stand for is read.
__device__ inline bool was_raised(const Flag* flag, unsigned long long expected) {
  const unsigned long long found = *static_cast<const volatile unsigned long long*>(&flag->word);
  const bool same_call = static_cast<unsigned int>(found) == static_cast<unsigned int>(expected);
  return (!same_call || found == expected) && is_raised(flag, found, expected);
}
__device__ inline void acquire() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// Returns true once the flag has been raised, and false once a wait of this rank has given up.
// Ranks in different calls have different fingerprints; `compares` is false where only the number
// of the call counts.
__device__ inline bool wait(const Flag* flag, unsigned long long expected, const Waits& waits,
                            int peer, int place, bool compares = true) {
  // Polling takes memory bandwidth and power from warps that multiply. Therefore it backs off: the
  // longer a wait lasts, the more seldom it polls.
  constexpr unsigned int kLongest = 1000;  // nanoseconds
  unsigned int sleep = 16;
  unsigned long long began = 0;
  for (unsigned int turn = 1;; ++turn) {
    const unsigned long long found = load_acquire(&flag->word);
    const bool same_call = static_cast<unsigned int>(found) == static_cast<unsigned int>(expected);
    if (compares && same_call && found != expected) {
      give_up(waits, Trouble::mismatch, peer, place, expected, found);
      return false;
    }
    if (is_raised(flag, found, expected)) return true;
    __nanosleep(sleep);
    if (sleep < kLongest) sleep *= 2;
    if (turn % 32 != 0) continue;
    if (*static_cast<volatile unsigned int*>(waits.gave_up) != 0) return false;
    const unsigned long long now = gpu_clock();
    if (began == 0) began = now;
    if (now - began > waits.timeout) {
      give_up(waits, Trouble::timeout, peer, place, expected, found);
      return false;
    }
  }
}

// Returns once the flag has been raised for the call with this number, or a later one.
__device__ inline void wait_for_epoch(const Flag* flag, unsigned int epoch, const Waits& waits,
                                      int peer) {
  wait(flag, epoch, waits, peer, -1, false);
}

#endif

}  // namespace plait::comm::cuda
