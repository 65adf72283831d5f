// The loop in which a call waits for another rank.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "comm/core/group.h"

namespace plait::comm {

inline constexpr Nanoseconds kNever = INT64_MAX;

// The two questions of a wait: whether the event has happened, and when it will, if that is known.
struct Question {
  base::FunctionRef<bool()> ready;
  base::FunctionRef<Nanoseconds()> due;  // kNever: not known
  base::FunctionRef<Awaited()> awaited;  // which rank is to blame if it never comes

  // A counter that grows while chunks come and go: a wait does not give up while data moves. Null:
  // the wait is for a single chunk.
  const std::uint64_t* moves = nullptr;
};

void wait_slowly(Group& group, const Question& question);

// Returns when ready() returns true. Throws when the group fails, a peer is lost, or the deadline
// passes.
template <class Ready, class Due, class AwaitedNow>
void wait_until(Group& group, Ready&& ready, Due&& due, AwaitedNow&& awaited,
                const std::uint64_t* moves = nullptr) {
  // A few polls without any pause: a chunk from a neighbouring core is seen within its own latency.
  for (int poll = group.policy().polls; poll > 0; --poll) {
    if (ready()) return;
  }
  wait_slowly(group, Question{ready, due, awaited, moves});
}

}  // namespace plait::comm
