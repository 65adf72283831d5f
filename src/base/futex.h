// Sleeping on a word of memory, which processes share if the memory is shared.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace plait::base {

// Sleeps while `word` holds `seen`, at most for `longest`. It may also return early without a
// reason.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen, Nanoseconds longest);
void futex_wake_all(const std::atomic<std::uint32_t>& word);

// An asymmetric fence between processes. The side that runs rarely calls heavy_fence(); the side
// that runs often needs only a compiler fence. The kernel makes every processor that runs a
// registered process execute a full memory fence (membarrier). False where the kernel does not
// offer it.
bool register_for_heavy_fences();
bool heavy_fence();

// Tells the processor that this is a spin loop.
inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace plait::base
