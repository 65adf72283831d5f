// Arithmetic that does not depend on what the caller's thread has set.
#pragma once

#include <cfenv>

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace plait::base {

// To nearest, with denormals, and without traps.
inline void set_default_floats() {
#ifdef __SSE2__
  // All that plait computes follows this register, and a look at it takes a tenth of what
  // std::fesetenv() takes, which sets the old coprocessor too.
  constexpr unsigned kFlags = 0x3F;  // of exceptions that there were
  constexpr unsigned kDefault = 0x1F80;
  const unsigned now = _mm_getcsr();
  if ((now & ~kFlags) != kDefault) _mm_setcsr(kDefault | (now & kFlags));
#else
  std::fesetenv(FE_DFL_ENV);
#endif
}

// While it lives, the thread rounds to nearest and keeps denormals; then it is as it was before,
// with the exception flags that it had.
class DefaultFloats {
 public:
  DefaultFloats() {
    std::fegetenv(&before_);
    set_default_floats();
  }
  ~DefaultFloats() { std::fesetenv(&before_); }
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace plait::base
