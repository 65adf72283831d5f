#include <algorithm>

#include "base/check.h"
#include "plait/trace.h"

namespace plait {

// The peer answered at some time between asking and hearing, so assuming the middle is wrong by at
// most half of the round trip. Queues only lengthen a round trip, and seldom both directions
// equally. Therefore the shortest round trip gives the tightest bound, while a mean would include
// every delay.
ClockOffset estimate_clock_offset(std::span<const ClockSample> samples) {
  PLAIT_CHECK(!samples.empty(), "estimate_clock_offset: there are no samples");
  for (const ClockSample& sample : samples) {
    PLAIT_CHECK(sample.heard >= sample.asked, "estimate_clock_offset: an answer was heard at ",
                sample.heard, " ns, before it was asked for at ", sample.asked, " ns");
  }
  const auto round_trip = [](const ClockSample& sample) { return sample.heard - sample.asked; };
  const ClockSample best = *std::ranges::min_element(samples, {}, round_trip);
  const std::int64_t half = round_trip(best) / 2;
  const std::int64_t middle = best.asked + half;
  return {.nanoseconds = best.answered - middle, .uncertainty = half + 1, .at = middle};
}

}  // namespace plait
