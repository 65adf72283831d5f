// Sleeping on a word of memory, shared between processes where the memory is.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace plait::base {

// Sleeps while `word` holds `seen`, at most `longest`; may also return early for no reason.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen, Nanoseconds longest);
void futex_wake_all(const std::atomic<std::uint32_t>& word);

// An asymmetric fence between processes. The side that runs rarely calls heavy_fence(), the side
// that runs often needs a compiler's fence only: the kernel makes every processor that runs a
// registered process pass a full memory fence (membarrier). False where the kernel does not offer
// it.
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
