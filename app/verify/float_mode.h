// The floating-point modes of a rank's thread when it makes a call.
#pragma once

#include <array>
#include <cfenv>

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace plait::verify {

struct FloatMode {
  int rounding = FE_TONEAREST;
  bool flushes = false;  // denormal results become 0, and denormal operands count as 0

  bool operator==(const FloatMode&) const = default;
};

inline constexpr std::array<FloatMode, 5> kFloatModes = {
    {{},
     {.flushes = true},
     {.rounding = FE_UPWARD},
     {.rounding = FE_DOWNWARD},
     {.rounding = FE_TOWARDZERO, .flushes = true}}};

// On processors other than x86 only the rounding mode is set.
class InFloatMode {
 public:
  explicit InFloatMode(const FloatMode& mode) {
    std::fegetenv(&before_);
    std::fesetround(mode.rounding);
#ifdef __SSE2__
    if (mode.flushes) _mm_setcsr(_mm_getcsr() | kFlush);
#endif
  }
  InFloatMode(const InFloatMode&) = delete;
  InFloatMode& operator=(const InFloatMode&) = delete;
  ~InFloatMode() { std::fesetenv(&before_); }

  // True if the thread is still in this mode.
  static bool holds(const FloatMode& mode) {
#ifdef __SSE2__
    if (((_mm_getcsr() & kFlush) != 0) != mode.flushes) return false;
#endif
    return std::fegetround() == mode.rounding;
  }

 private:
#ifdef __SSE2__
  static constexpr unsigned kFlush = 0x8040;
#endif
  std::fenv_t before_;
};

}  // namespace plait::verify
