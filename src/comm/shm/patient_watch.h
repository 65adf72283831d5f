// The watch of a rank that waits to hear what all ranks have brought to a meeting.
#pragma once

#include "base/clock.h"
#include "comm/interruption.h"
#include "comm/shm/meeting_place.h"

namespace plait::comm::shm {

inline void poll(const Watch& watch, int peer) {
  if (watch) watch(peer);
}

// The coordinator sends what all have brought to one rank after another, and the first to hear of
// it may have ended the group before the last does. For the other ranks a refusal of the watch
// counts only when nothing has come for a while after it, because a meeting that took place took
// place for all ranks.
class PatientWatch {
 public:
  static constexpr base::Nanoseconds kPatience = 100 * base::kMillisecond;

  // `watch` must outlive it.
  PatientWatch(const Watch& watch, bool is_coordinator)
      : watch_(watch), patience_(is_coordinator ? 0 : kPatience) {}

  // Polls the watch; throws what it throws, if it has refused for long enough. What the caller's
  // hook throws passes at once.
  void poll(int peer);

 private:
  const Watch& watch_;
  base::Nanoseconds patience_;
  base::Nanoseconds refused_at_ = 0;
  Interruption interruption_;
};

}  // namespace plait::comm::shm
