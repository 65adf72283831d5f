// When something that does one thing at a time is taken: a wire, or a processor.
#pragma once

#include <deque>

#include "base/clock.h"
#include "plait/trace.h"

namespace plait::comm::modelled {

class Bookings {
 public:
  // Takes the first gap from `from` on that is long enough, and returns when it has passed. What is
  // booked later may come before.
  base::Nanoseconds take(base::Nanoseconds from, base::Nanoseconds length);

  // How long it has been taken until `now`. Nothing may be booked before that any more.
  base::Nanoseconds taken_until(base::Nanoseconds now);

 private:
  void forget_first();

  std::deque<TimeInterval> taken_;  // in order, none of them adjacent
  base::Nanoseconds forgotten_ = 0;
};

}  // namespace plait::comm::modelled
