// Floating-point arithmetic that does not depend on the settings of the caller's thread.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

#include <cstdint>

namespace plait::base {

// The settings that all floating-point code of plait follows, and the exceptions raised so far.
// Reading them takes a nanosecond or a few; std::fesetenv(), which on x86 also sets the
// coprocessor, takes ten times as long, and on Arm leaves the mode of NaNs as it is.
#if defined(__SSE2__)
using FloatControl = unsigned;
inline constexpr FloatControl kRaised = 0x3F;
inline constexpr FloatControl kFlushDenormals = 0x8040;  // results, and operands
inline constexpr FloatControl kDefaultControl = 0x1F80;  // nothing is trapped
inline FloatControl float_control() { return _mm_getcsr(); }
inline void set_float_control(FloatControl control) { _mm_setcsr(control); }
#elif defined(__aarch64__)
using FloatControl = std::uint64_t;  // FPSR above FPCR
inline constexpr FloatControl kRaised = ~std::uint64_t{0} << 32U;
inline constexpr FloatControl kFlushDenormals = std::uint64_t{1} << 24U;
inline constexpr FloatControl kDefaultControl = 0;
inline FloatControl float_control() {
  std::uint64_t control = 0;
  std::uint64_t status = 0;
  asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(control), "=r"(status));
  return status << 32U | (control & ~kRaised);
}
inline void set_float_control(FloatControl control) {
  asm volatile("msr fpcr, %0\n\tmsr fpsr, %1"
               :
               : "r"(control & ~kRaised), "r"(control >> 32U)
               : "memory");
}
#else  // only the rounding mode: the standard library knows nothing of denormals
using FloatControl = int;
inline constexpr FloatControl kRaised = 0;
inline constexpr FloatControl kFlushDenormals = 0;  // how they are flushed is not known
inline constexpr FloatControl kDefaultControl = FE_TONEAREST;
inline FloatControl float_control() { return std::fegetround(); }
inline void set_float_control(FloatControl control) { std::fesetround(control); }
#endif

// Rounds to nearest, keeps denormals, and traps nothing. Processors other than those named above
// may go on flushing denormals and trapping.
inline void set_default_floats() {
  const FloatControl now = float_control();
  if ((now & ~kRaised) != kDefaultControl) set_float_control(kDefaultControl | (now & kRaised));
}

// Sets the defaults while it lives. Then restores the thread's own settings, with the exception
// flags that it had. A nested object costs next to nothing.
class DefaultFloats {
 public:
  DefaultFloats() : before_(float_control()) {
    set_default_floats();
#ifdef __SSE2__
    coprocessor_ = coprocessor_control();
    set_coprocessor(kDefaultCoprocessor);
#endif
  }
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;
  ~DefaultFloats() {
    if (float_control() != before_) set_float_control(before_);
#ifdef __SSE2__
    set_coprocessor(coprocessor_);
#endif
  }

 private:
#ifdef __SSE2__
  // plait computes nothing on the coprocessor, but a hook's std::fesetround() sets it too, and
  // std::fegetround() reads it.
  static unsigned short coprocessor_control() {
    unsigned short control = 0;
    asm volatile("fnstcw %0" : "=m"(control));
    return control;
  }

  static void set_coprocessor(unsigned short control) {
    if (coprocessor_control() != control) asm volatile("fldcw %0" : : "m"(control));
  }

  static constexpr unsigned short kDefaultCoprocessor = 0x37F;
  unsigned short coprocessor_ = 0;
#endif
  FloatControl before_;
};

}  // namespace plait::base
