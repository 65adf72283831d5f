// The modes that a thread may be in when it calls plait, and in which conversions must not differ.
#pragma once

#include <cfenv>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace plait {

struct FloatMode {
  const char* name;
  void (*enter)();
  void (*leave)();
};

inline std::vector<FloatMode> float_modes() {
  constexpr auto kNearest = [] { std::fesetround(FE_TONEAREST); };
  std::vector<FloatMode> modes = {
      {"rounding up", [] { std::fesetround(FE_UPWARD); }, kNearest},
      {"rounding down", [] { std::fesetround(FE_DOWNWARD); }, kNearest},
      {"rounding to zero", [] { std::fesetround(FE_TOWARDZERO); }, kNearest},
  };
#if defined(__x86_64__)
  // Flush to zero and denormals are zero: what torch.set_flush_denormal() turns on.
  modes.push_back({"flushing denormals", [] { _mm_setcsr(_mm_getcsr() | 0x8040U); },
                   [] { _mm_setcsr(_mm_getcsr() & ~0x8040U); }});
#endif
  return modes;
}

// What a mode sets: to see that it still holds.
inline unsigned float_control() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3FU;  // but for the exceptions that there were
#else
  return static_cast<unsigned>(std::fegetround());
#endif
}

}  // namespace plait
