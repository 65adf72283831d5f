#include "measure/link_search.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"

namespace plait::measure {

Link link_of(double bytes_per_second) {
  constexpr std::int64_t kLatency = 5 * base::kMicrosecond;
  const double bits = std::max(8 * bytes_per_second, 8.0);
  const double step = std::pow(10, std::floor(std::log10(bits)) - 2);
  return {.bytes_per_second = std::round(bits / step) * step / 8, .latency_ns = kLatency};
}

double LinkSearch::off(const Try& one) {
  if (one.ratio <= 0) return std::numeric_limits<double>::infinity();
  return one.ratio > 1 ? one.ratio - 1 : 1 / one.ratio - 1;
}

double LinkSearch::off() const { return off(best_); }

void LinkSearch::take_again(double ratio) {
  next_ = best_.seconds_per_byte;
  best_ = {};
  for (std::optional<Try>* one : {&fast_, &slow_})
    if (*one && (*one)->seconds_per_byte == next_) one->reset();
  take(ratio);
}

void LinkSearch::take(double ratio) {
  const Try here = {.seconds_per_byte = next_, .ratio = ratio};
  if (best_.seconds_per_byte == 0 || off(here) < off(best_)) best_ = here;
  if (ratio < 1) {
    if (!fast_ || fast_->seconds_per_byte < next_) fast_ = here;
  } else {
    if (!slow_ || slow_->seconds_per_byte > next_) slow_ = here;
  }
  if (fast_ && slow_ && fast_->seconds_per_byte < slow_->seconds_per_byte) {
    next_ = between(*fast_, *slow_);
  } else {
    next_ = beyond(here);
  }
  last_ = here;
}

Link settle(const Link& first, int most,
            const std::function<std::optional<double>(const Link&)>& far_off) {
  Link link = first;
  LinkSearch search(first.bytes_per_second);
  for (int more = 0;; ++more) {
    const std::optional<double> ratio = far_off(link);
    if (!ratio || more == most) return link;
    search.take(*ratio);
    link = link_of(search.next());
  }
}

// Interpolates between the two, but not too close to either, so that the measurement tells
// something new.
double LinkSearch::between(const Try& fast, const Try& slow) {
  const double part = (1 - fast.ratio) / (slow.ratio - fast.ratio);
  return std::lerp(fast.seconds_per_byte, slow.seconds_per_byte, std::clamp(part, 0.1, 0.9));
}

// Extrapolates from the last two if they tell a direction; otherwise assumes that time is
// proportional to bytes.
double LinkSearch::beyond(const Try& here) const {
  const double at = here.seconds_per_byte;
  double next = at / std::max(here.ratio, 1e-3);
  if (last_ && last_->seconds_per_byte != at) {
    const double slope = (here.ratio - last_->ratio) / (at - last_->seconds_per_byte);
    if (slope > 0) next = at + (1 - here.ratio) / slope;
  }
  return std::clamp(next, at / 4, at * 4);
}

}  // namespace plait::measure
