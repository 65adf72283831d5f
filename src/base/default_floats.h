// Arithmetic that does not depend on what the caller's thread has set.
#pragma once

#ifdef __SSE2__
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace plait::base {

// To nearest, with denormals, and without traps.
inline void set_default_floats() {
#ifdef __SSE2__
  // All that plait computes follows this one register. Reading it takes a nanosecond, and
  // std::fesetenv(), which sets the old coprocessor too, ten times as long.
  constexpr unsigned kFlags = 0x3F;  // the exceptions that there were
  constexpr unsigned kDefault = 0x1F80;
  const unsigned now = _mm_getcsr();
  if ((now & ~kFlags) != kDefault) _mm_setcsr(kDefault | (now & kFlags));
#else
  std::fesetenv(FE_DFL_ENV);
#endif
}

// While it lives, the thread computes so; then it is as it was before, with the exception flags
// that it had. Inside another one it costs next to nothing.
class DefaultFloats {
 public:
#ifdef __SSE2__
  DefaultFloats() : before_(_mm_getcsr()), coprocessor_(coprocessor_control()) {
    set_default_floats();
  }
  ~DefaultFloats() {
    if (_mm_getcsr() != before_) _mm_setcsr(before_);
    // plait computes nothing there, but a hook's std::fesetround() sets it too, and
    // std::fegetround() reads it.
    if (coprocessor_control() != coprocessor_) asm volatile("fldcw %0" : : "m"(coprocessor_));
  }
#else
  DefaultFloats() {
    std::fegetenv(&before_);
    set_default_floats();
  }
  ~DefaultFloats() { std::fesetenv(&before_); }
#endif
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

 private:
#ifdef __SSE2__
  static unsigned short coprocessor_control() {
    unsigned short control = 0;
    asm volatile("fnstcw %0" : "=m"(control));
    return control;
  }

  unsigned before_;
  unsigned short coprocessor_;
#else
  std::fenv_t before_;
#endif
};

}  // namespace plait::base
