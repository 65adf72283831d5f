#include "comm/wait.h"

#include <sched.h>

#include <algorithm>

#include "base/futex.h"
#include "comm/patience.h"
#include "comm/virtual_clock.h"

namespace plait::comm {
namespace {

// Sleeping wakes up late by the timer's slack and a scheduler's turn: the rest is spun away.
constexpr Nanoseconds kWakeUpSlack = 150 * base::kMicrosecond;

bool spin(const Group& group, base::FunctionRef<bool()> ready) {
  if (group.policy().crowded) return false;
  const Nanoseconds end = base::now() + group.policy().spin;
  while (base::now() < end) {
    for (int look = 0; look < 16; ++look) {
      if (ready()) return true;
      base::pause();
    }
  }
  return false;
}

// The chunk's arrival time is known: sleep until shortly before, then look at it without pause.
void sit_out(Group& group, Nanoseconds due, const Patience& patience,
             base::FunctionRef<bool()> ready) {
  if (due - base::now() > kWakeUpSlack) {
    group.doze(std::min(due - kWakeUpSlack, patience.wake_at()), ready);
  } else if (group.policy().crowded) {
    ::sched_yield();
  } else {
    base::pause();
  }
}

}  // namespace

void wait_slowly(Group& group, const Question& question) {
  if (VirtualClock* clock = group.clock()) return clock->wait(question);
  const Awaited first = question.awaited();
  const Span span(group.trace(), Lane::wait, "wait",
                  {.peer = first.peer, .chunk = static_cast<std::int32_t>(first.tag.chunk)});
  if (spin(group, question.ready)) return;
  const Nanoseconds start = base::now();
  Patience patience(group.policy(), {}, start);
  std::uint64_t moved = question.moves == nullptr ? 0 : *question.moves;
  const Nanoseconds nap_from = start + group.policy().yield;
  KnownWait known(group);
  known.say(first);
  while (!question.ready()) {
    group.raise_if_failed();
    const Nanoseconds now = base::now();
    const Nanoseconds due = question.due();
    if (due != kNever) patience.bear_until(due);
    if (question.moves != nullptr && *question.moves != moved) {
      moved = *question.moves;
      patience.renew(now);
    }
    if (patience.must_look(now)) {
      const Awaited awaited = question.awaited();
      known.say(awaited);
      // A peer that has left is not to blame where this rank now waits for another one, or where
      // the time at which the chunk will be here is known.
      const auto ready = [&] {
        return question.ready() || question.awaited().peer != awaited.peer ||
               question.due() != kNever;
      };
      group.examine(&awaited, ready);
      if (patience.is_over(now) && !question.ready()) group.give_up(awaited);
    }
    if (due != kNever) {
      sit_out(group, due, patience, question.ready);
    } else if (now < nap_from) {
      ::sched_yield();
    } else {
      group.doze(patience.wake_at(), question.ready);
    }
  }
}

}  // namespace plait::comm
