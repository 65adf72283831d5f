// How long a rank still waits for others, when it polls their health next, and until when it may
// sleep meanwhile. The loops that wait for a rank in a call, and over tcp and mpi, have one:
//
//   Patience patience(group.policy());
//   while (!ready()) {
//     const Nanoseconds now = base::now();
//     if (patience.must_poll_peers(now)) ...  // dead peers, the caller's interruption
//     if (patience.is_over(now)) ...    // give up, and blame a rank
//     sleep(patience.wake_at());
//   }
//
// Each renewal takes the policy's timeout of that moment. A turn of the loop counts for a second at
// most (see Deadline). One thread at a time uses it.
#pragma once

#include <algorithm>

#include "comm/core/deadline.h"
#include "comm/core/group.h"
#include "comm/core/wait_policy.h"

namespace plait::comm {

// When the peers are polled first, and how long after one poll the next one is due.
struct PollTimes {
  Nanoseconds first = base::kMillisecond;
  Nanoseconds between = 10 * base::kMillisecond;
};

// For loops that poll in their first turn: what they wait for takes long, or needs the poll to
// come.
inline constexpr PollTimes kAtOnce = {.first = 0};

class Patience {
 public:
  // Much may be computed between two polls: no more than this of it counts as waiting.
  static constexpr Nanoseconds kLongestPoll = 100 * base::kMillisecond;

  explicit Patience(const WaitPolicy& policy, const PollTimes& times = PollTimes(),
                    Nanoseconds now = base::now())
      : policy_(&policy),
        between_(times.between),
        poll_peers_at_(now + times.first),
        deadline_(policy.timeout, now) {}

  // True if it is time to poll the peers: are they alive, and in the same call? True at most once
  // in an interval.
  bool must_poll_peers(Nanoseconds now) {
    if (now < poll_peers_at_) return false;
    poll_peers_at_ = now + between_;
    return true;
  }

  // For waits outside of calls, which ask here whether the caller interrupts them. Waits in a call
  // ask in Group::examine(), which knows what they wait for.
  bool must_poll_peers(Nanoseconds now, Group& group) {
    if (!must_poll_peers(now)) return false;
    group.interrupt_if_asked(nullptr);
    return true;
  }

  bool is_over(Nanoseconds now) { return deadline_.is_over(now); }
  Nanoseconds poll_peers_at() const { return poll_peers_at_; }
  Nanoseconds wake_at() const { return std::min(deadline_.at(), poll_peers_at_); }

  // Something has moved, so the patience begins anew.
  void renew(Nanoseconds now) { deadline_ = Deadline(policy_->timeout, now); }

  // The awaited event is known to come at that time: no peer is late before.
  void bear_until(Nanoseconds due) { deadline_.put_off_until(due + policy_->timeout); }

  // For a rank that polls a mailbox instead of waiting: time since the last poll counts as waiting
  // only if this poll asked in vain, and at most kLongestPoll of it.
  void note_poll(Nanoseconds now, bool in_vain) {
    const Nanoseconds passed = std::max<Nanoseconds>(now - polled_at(), 0);
    deadline_.put_off(in_vain ? std::max<Nanoseconds>(passed - kLongestPoll, 0) : passed);
    deadline_.begin_turn(now);
  }

  Nanoseconds polled_at() const { return deadline_.turn(); }

 private:
  const WaitPolicy* policy_;
  Nanoseconds between_;
  Nanoseconds poll_peers_at_;
  Deadline deadline_;
};

}  // namespace plait::comm
