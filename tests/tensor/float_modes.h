// The modes of a thread that calls plait, in which conversions must not differ.
#pragma once

#include <cfenv>
#include <vector>

#include "base/default_floats.h"

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
  // torch.set_flush_denormal() sets this one.
  if constexpr (base::kFlushDenormals != 0) {
    modes.push_back(
        {"flushing denormals",
         [] { base::set_float_control(base::float_control() | base::kFlushDenormals); },
         [] { base::set_float_control(base::float_control() & ~base::kFlushDenormals); }});
  }
  return modes;
}

// The settings of a mode, to check that it still holds.
inline base::FloatControl float_control() { return base::float_control() & ~base::kRaised; }

}  // namespace plait
