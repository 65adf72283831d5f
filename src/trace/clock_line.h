// The line that maps a host's clock to the clock of a timeline.
#pragma once

#include <algorithm>

#include "base/clock.h"
#include "plait/trace.h"

namespace plait::trace {

// The line through two measurements. It ends at them, because a slope's error would grow beyond.
struct ClockLine {
  ClockOffset first = {.nanoseconds = 0};
  ClockOffset last = {.nanoseconds = 0};

  base::Nanoseconds offset_at(base::Nanoseconds time) const {
    const base::Nanoseconds length = last.at - first.at;
    if (length <= 0) return last.nanoseconds;
    const base::Nanoseconds since = std::clamp(time, first.at, last.at) - first.at;
    // Hours of nanoseconds times their drift need more than 64 bits.
    const auto drift = static_cast<__int128>(last.nanoseconds - first.nanoseconds) * since / length;
    return first.nanoseconds + static_cast<base::Nanoseconds>(drift);
  }

  // Holds for times between the measurements, if the drift is steady.
  base::Nanoseconds uncertainty() const { return std::max(first.uncertainty, last.uncertainty); }
};

}  // namespace plait::trace
