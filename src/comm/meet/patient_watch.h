// Watches the group while a rank waits for the result of a meeting of all ranks.
#pragma once

#include "base/clock.h"
#include "comm/core/interruption.h"
#include "comm/meet/meeting_place.h"

namespace plait::comm::shm {

inline void poll(const Watch& watch, int peer) {
  if (watch) watch(peer);
}

// The coordinator sends the result to one rank after another. The first receiver may end the group
// before the last one has its result, although the meeting has succeeded. Therefore, if the watch
// refuses, a rank other than the coordinator goes on waiting for a while, and fails only if no
// result comes.
class PatientWatch {
 public:
  static constexpr base::Nanoseconds kPatience = 100 * base::kMillisecond;

  // `watch` must outlive it.
  PatientWatch(const Watch& watch, bool is_coordinator)
      : watch_(watch), patience_(is_coordinator ? 0 : kPatience) {}

  // Polls the watch, and passes on its exception if it has refused for long enough. An exception of
  // the caller's hook is passed on at once.
  void poll(int peer);

 private:
  const Watch& watch_;
  base::Nanoseconds patience_;
  base::Nanoseconds refused_at_ = 0;
  Interruption interruption_;
};

}  // namespace plait::comm::shm
