// Two ways to take the time of a span, and the way from either back to base::now().
#pragma once

#include "base/clock.h"
#include "base/ticks.h"

namespace plait::trace {

// Reads the processor's counter where that may be trusted, base::now() elsewhere.
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

// One instant on both clocks, `width` ticks being the doubt.
struct Anchor {
  base::Ticks ticks;
  base::Nanoseconds time;
  base::Ticks width;
};
Anchor drop_anchor(const Stopwatch& stopwatch);

// The line through two anchors. A record lies between its trace's beginning and its reading, so
// that the line's error is nowhere larger than the anchors' own, and no time is spent on measuring
// the counter's rate beforehand.
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
