#include "simulation/bookings.h"

#include <algorithm>
#include <iterator>

namespace plait::comm::modelled {
namespace {

// Gaps older than the last so many are never used: no rank hands over a chunk in the past.
constexpr std::size_t kRemembered = 256;

}  // namespace

base::Nanoseconds Bookings::take(base::Nanoseconds from, base::Nanoseconds length) {
  auto next = std::partition_point(taken_.begin(), taken_.end(),
                                   [&](const TimeInterval& one) { return one.end < from; });
  base::Nanoseconds begin = from;
  for (; next != taken_.end() && next->begin < begin + length; ++next)
    begin = std::max(begin, next->end);
  const base::Nanoseconds end = begin + length;
  // Adjacent intervals become one.
  const bool joins_before = next != taken_.begin() && std::prev(next)->end == begin;
  const bool joins_behind = next != taken_.end() && next->begin == end;
  if (joins_before && joins_behind) {
    std::prev(next)->end = next->end;
    taken_.erase(next);
  } else if (joins_before) {
    std::prev(next)->end = end;
  } else if (joins_behind) {
    next->begin = begin;
  } else {
    taken_.insert(next, {.begin = begin, .end = end});
  }
  if (taken_.size() > kRemembered) forget_first();
  return end;
}

base::Nanoseconds Bookings::taken_until(base::Nanoseconds now) {
  while (!taken_.empty() && taken_.front().end <= now) forget_first();
  base::Nanoseconds sum = forgotten_;
  if (!taken_.empty()) sum += std::max<base::Nanoseconds>(now - taken_.front().begin, 0);
  return sum;
}

void Bookings::forget_first() {
  forgotten_ += taken_.front().end - taken_.front().begin;
  taken_.pop_front();
}

}  // namespace plait::comm::modelled
