// The modes of a thread that calls plait, in which conversions must not differ.
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
  // Flush to zero and denormals are zero, as torch.set_flush_denormal() sets them.
  modes.push_back({"flushing denormals", [] { _mm_setcsr(_mm_getcsr() | 0x8040U); },
                   [] { _mm_setcsr(_mm_getcsr() & ~0x8040U); }});
#endif
  return modes;
}

// The settings of a mode, to check that it still holds.
inline unsigned float_control() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3FU;  // without the exceptions raised so far
#else
  return static_cast<unsigned>(std::fegetround());
#endif
}

}  // namespace plait
