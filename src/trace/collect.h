// Turns the contents of the threads' rings into the records of a timeline: times on the common
// clock, and numbered labels.
#pragma once

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "plait/trace.h"
#include "trace/record.h"
#include "trace/ring.h"
#include "trace/stopwatch.h"

namespace plait::trace {

// Maps a host's clock to the clock of a timeline: the line through two measurements. It ends at
// them, because a slope's error would grow beyond.
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

// Thread i's records come from contents[i]. The caller sets the rank.
RankRecords collect(const std::vector<Ring::Content>& contents, const Scale& scale,
                    const ClockLine& clock);

}  // namespace plait::trace
