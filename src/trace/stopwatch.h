// Two ways to measure a span, and the conversion of either to base::now().
#pragma once

#include "base/clock.h"
#include "base/ticks.h"

namespace plait::trace {

// Reads the processor's counter where it is steady, otherwise base::now().
class Stopwatch {
 public:
  Stopwatch() : counter_(base::ticks_are_steady()) {}
  explicit Stopwatch(bool counter) : counter_(counter) {}

  base::Ticks read() const {
    return counter_ ? base::ticks() : static_cast<base::Ticks>(base::now());
  }

 private:
  bool counter_;
};

// One instant on both clocks. `width` is the uncertainty in ticks.
struct Anchor {
  base::Ticks ticks;
  base::Nanoseconds time;
  base::Ticks width;
};
Anchor drop_anchor(const Stopwatch& stopwatch);

// The line through two anchors. Every record lies between the trace's start and its reading, so the
// line's error never exceeds that of the anchors. The counter's rate need not be measured
// beforehand.
class Scale {
 public:
  Scale(const Anchor& from, const Anchor& to);
  base::Nanoseconds time(base::Ticks ticks) const;

 private:
  Anchor from_;
  std::int64_t ticks_;
  std::int64_t nanoseconds_;
};

}  // namespace plait::trace
