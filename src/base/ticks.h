// The processor's own counter of time: read in half the time that base::now() takes, but in a unit
// that only a comparison with base::now() tells.
#pragma once

#include <cstdint>

#include "base/clock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace plait::base {

using Ticks = std::uint64_t;

// Whether ticks() runs at one rate, in step on all cores, and asleep or awake. Costs a file to
// read: ask once, not per reading.
bool ticks_are_steady();

// Not ordered against neighbouring instructions: a few nanoseconds of their work may be counted on
// the wrong side, which a fence would cure at the price of the reading.
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
