// The processor's own counter. Reading it takes half as long as base::now(), but its unit is known
// only by comparison with base::now().
#pragma once

#include <cstdint>

#include "base/clock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace plait::base {

using Ticks = std::uint64_t;

// True if ticks() runs at one rate, in step on all cores, also while a core sleeps. It reads a
// file, so call it once, not for each reading.
bool ticks_are_steady();

// It is not ordered against neighbouring instructions, so a few nanoseconds of their work may count
// on the wrong side. A fence would prevent that, but costs as much as the reading.
inline Ticks ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  Ticks value = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  return static_cast<Ticks>(now());
#endif
}

}  // namespace plait::base
