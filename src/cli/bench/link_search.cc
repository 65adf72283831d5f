#include "cli/bench/link_search.h"

#include <algorithm>
#include <cmath>

namespace plait::cli {

double LinkSearch::off(const Try& one) {
  if (one.ratio <= 0) return std::numeric_limits<double>::infinity();
  return one.ratio > 1 ? one.ratio - 1 : 1 / one.ratio - 1;
}

double LinkSearch::off() const { return off(best_); }

void LinkSearch::take(double ratio) {
  const Try here = {.seconds_per_byte = next_, .ratio = ratio};
  if (best_.seconds_per_byte == 0 || off(here) < off(best_)) best_ = here;
  if (ratio < 1) {
    if (!fast_ || fast_->seconds_per_byte < next_) fast_ = here;
  } else {
    if (!slow_ || slow_->seconds_per_byte > next_) slow_ = here;
  }
  const bool between = fast_ && slow_ && fast_->seconds_per_byte < slow_->seconds_per_byte;
  if (!between) {  // or what was measured contradicts itself
    next_ /= std::clamp(ratio, 0.25, 4.0);
    return;
  }
  // On the straight line between the two, and never so near to one of them that nothing is learnt.
  const double part = (1 - fast_->ratio) / (slow_->ratio - fast_->ratio);
  next_ = std::lerp(fast_->seconds_per_byte, slow_->seconds_per_byte, std::clamp(part, 0.1, 0.9));
}

}  // namespace plait::cli
