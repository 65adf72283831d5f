// The end of a loop's patience, in time during which this process ran.
//
// A job may be stopped as a whole: Ctrl-Z, a debugger, a container that is paused. When it goes on,
// no rank is late. So a turn of a loop counts for at most kLongestTurn, however long it has taken:
// no loop sleeps for longer in one turn.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace plait::comm {

using base::Nanoseconds;

class Deadline {
 public:
  static constexpr Nanoseconds kLongestTurn = base::kSecond;

  explicit Deadline(Nanoseconds timeout, Nanoseconds now = base::now())
      : at_(now + timeout), turn_(now) {}

  // To be asked in every turn.
  bool is_over(Nanoseconds now = base::now()) {
    put_off(std::max<Nanoseconds>(now - turn_ - kLongestTurn, 0));
    turn_ = std::max(turn_, now);
    return now >= at_;
  }

  // It may still be put off.
  Nanoseconds at() const { return at_; }

  // The time since the last turn counts for so much less.
  void put_off(Nanoseconds by) { at_ += by; }
  void put_off_until(Nanoseconds at) { at_ = std::max(at_, at); }

  // When is_over() was asked last, or a turn was begun.
  Nanoseconds turn() const { return turn_; }
  void begin_turn(Nanoseconds now) { turn_ = now; }

 private:
  Nanoseconds at_;
  Nanoseconds turn_;
};

}  // namespace plait::comm
