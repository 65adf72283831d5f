// Floating-point arithmetic that does not depend on the settings of the caller's thread.
#pragma once

#ifdef __SSE2__
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace plait::base {

// Rounds to nearest, keeps denormals, and traps nothing.
inline void set_default_floats() {
#ifdef __SSE2__
  // All floating-point code of plait follows this one register. Reading it takes a nanosecond;
  // std::fesetenv(), which also sets the x87 coprocessor, takes ten times as long.
  constexpr unsigned kFlags = 0x3F;  // the exceptions raised so far
  constexpr unsigned kDefault = 0x1F80;
  const unsigned now = _mm_getcsr();
  if ((now & ~kFlags) != kDefault) _mm_setcsr(kDefault | (now & kFlags));
#else
  std::fesetenv(FE_DFL_ENV);
#endif
}

// Sets the defaults while it lives. Then restores the thread's own settings, with the exception
// flags that it had. A nested object costs next to nothing.
class DefaultFloats {
 public:
#ifdef __SSE2__
  // plait computes nothing on the coprocessor, but a hook's std::fesetround() sets it too, and
  // std::fegetround() reads it.
  DefaultFloats() : before_(_mm_getcsr()), coprocessor_(coprocessor_control()) {
    set_default_floats();
    set_coprocessor(kDefaultCoprocessor);
  }
  ~DefaultFloats() {
    if (_mm_getcsr() != before_) _mm_setcsr(before_);
    set_coprocessor(coprocessor_);
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

  static void set_coprocessor(unsigned short control) {
    if (coprocessor_control() != control) asm volatile("fldcw %0" : : "m"(control));
  }

  static constexpr unsigned short kDefaultCoprocessor = 0x37F;
  unsigned before_;
  unsigned short coprocessor_;
#else
  std::fenv_t before_;
#endif
};

}  // namespace plait::base
