// The end of a loop's patience, in time during which this process ran.
//
// A job may be stopped as a whole: Ctrl-Z, a debugger, a container that is paused. When it goes on,
// no rank is late. So a turn of a loop counts for at most kLongestTurn, however long it has taken:
// no loop sleeps for longer in one turn.
//
// The rank that is waited for may be in a call that needs this one's part of a collective, which
// this thread has started in another communicator: as long as that moves, the patience begins anew.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/clock.h"

namespace plait::comm {

using base::Nanoseconds;

// How often this thread has moved what it has started, while it waited elsewhere (started.h).
std::uint64_t moves_beside() noexcept;

class Deadline {
 public:
  static constexpr Nanoseconds kLongestTurn = base::kSecond;

  explicit Deadline(Nanoseconds timeout, Nanoseconds now = base::now())
      : timeout_(timeout), at_(now + timeout), turn_(now) {}

  // To be asked in every turn.
  bool is_over(Nanoseconds now = base::now()) {
    put_off(std::max<Nanoseconds>(now - turn_ - kLongestTurn, 0));
    turn_ = std::max(turn_, now);
    const std::uint64_t moves = moves_beside();
    if (std::exchange(moves_, moves) != moves) put_off_until(now + timeout_);
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
  Nanoseconds timeout_;
  Nanoseconds at_;
  Nanoseconds turn_;
  std::uint64_t moves_ = moves_beside();
};

}  // namespace plait::comm
