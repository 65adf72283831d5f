// The one loop in which a rank waits for another. Nothing else in plait waits for a peer.
#pragma once

#include "base/function_ref.h"
#include "comm/group.h"

namespace plait::comm {

inline constexpr Nanoseconds kNever = INT64_MAX;

// What a wait asks: is it here? and, where that is known, when will it be?
struct Question {
  base::FunctionRef<bool()> ready;
  base::FunctionRef<Nanoseconds()> due;  // kNever: not known
  base::FunctionRef<Awaited()> awaited;  // who is to blame if it never comes
};

void wait_slowly(Group& group, const Question& question);

// Returns when ready() says yes. Throws when the group fails, a peer is lost, or the deadline
// passes.
template <class Ready, class Due, class AwaitedNow>
void wait_until(Group& group, Ready&& ready, Due&& due, AwaitedNow&& awaited) {
  // A few looks without any pause: a chunk from a neighbouring core is seen within its own latency.
  for (int look = 0; look < 64; ++look) {
    if (ready()) return;
  }
  wait_slowly(group, Question{ready, due, awaited});
}

}  // namespace plait::comm
