// The loop in which a call waits for another rank.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "comm/group.h"

namespace plait::comm {

inline constexpr Nanoseconds kNever = INT64_MAX;

// What a wait asks: is it here? and, where that is known, when will it be?
struct Question {
  base::FunctionRef<bool()> ready;
  base::FunctionRef<Nanoseconds()> due;  // kNever: not known
  base::FunctionRef<Awaited()> awaited;  // which rank is to blame if it never comes

  // Grows while chunks come and go: what takes long but moves is no reason to give up. Null: what
  // is waited for is one chunk.
  const std::uint64_t* moves = nullptr;
};

void wait_slowly(Group& group, const Question& question);

// Returns when ready() says yes. Throws when the group fails, a peer is lost, or the deadline
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
