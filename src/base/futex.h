// Sleeping on a word of memory, shared between processes where the memory is.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace plait::base {

// Sleeps while `word` holds `seen`, at most `longest`; may also return early for no reason.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen, Nanoseconds longest);
void futex_wake_all(const std::atomic<std::uint32_t>& word);

// Tells the processor that this is a spin loop.
inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace plait::base
