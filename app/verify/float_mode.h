// The floating-point modes of a rank's thread when it makes a call.
#pragma once

#include <array>
#include <cfenv>

#include "base/default_floats.h"

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

class InFloatMode {
 public:
  explicit InFloatMode(const FloatMode& mode) {
    std::fegetenv(&before_);
    std::fesetround(mode.rounding);
    if (mode.flushes) base::set_float_control(base::float_control() | base::kFlushDenormals);
  }
  InFloatMode(const InFloatMode&) = delete;
  InFloatMode& operator=(const InFloatMode&) = delete;
  ~InFloatMode() { std::fesetenv(&before_); }

  // True if the thread is still in this mode.
  static bool holds(const FloatMode& mode) {
    const base::FloatControl flushing = mode.flushes ? base::kFlushDenormals : 0;
    return (base::float_control() & base::kFlushDenormals) == flushing &&
           std::fegetround() == mode.rounding;
  }

 private:
  std::fenv_t before_;
};

}  // namespace plait::verify
