#include "comm/core/wait.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/futex.h"
#include "comm/core/executor.h"
#include "comm/core/patience.h"
#include "comm/core/started.h"

namespace plait::comm {
namespace {

// Sleeping wakes up late by the timer's slack and a scheduler's turn: the rest is spun away.
constexpr Nanoseconds kWakeUpSlack = 150 * base::kMicrosecond;

bool spin(const Group& group, base::FunctionRef<bool()> ready) {
  if (group.policy().oversubscribed) return false;
  const Nanoseconds end = base::now() + group.policy().spin;
  while (base::now() < end) {
    for (int poll = 0; poll < 16; ++poll) {
      if (ready()) return true;
      base::pause();
    }
  }
  return false;
}

// The chunk's arrival time is known: sleep until shortly before, then poll without pause.
void sit_out(Group& group, Nanoseconds due, Nanoseconds wake_at, base::FunctionRef<bool()> ready) {
  if (due - base::now() > kWakeUpSlack) {
    group.sleep_until(std::min(due - kWakeUpSlack, wake_at), ready);
  } else if (group.policy().oversubscribed) {
    ::sched_yield();
  } else {
    base::pause();
  }
}

// If the caller's hook throws in it, this wait ends.
bool advance_others(Group& group, const Question& question) try {
  return advance_started(clock_of(group));
} catch (...) {
  const Awaited awaited = question.awaited();
  group.note_interruption(&awaited);
  throw;
}

// True if there is nothing to give up for: what is waited for has come, or this rank now waits for
// another one, or knows when the chunk will be here.
bool goes_on(const Question& question, const Awaited& awaited) {
  return question.ready() || question.awaited().peer != awaited.peer || question.due() != kNever;
}

}  // namespace

void wait_slowly(Group& group, const Question& question) {
  Executor* const executor = group.executor();
  if (executor != nullptr && executor->wait(question)) return;
  const Awaited first = question.awaited();
  const Span span(group.trace(), Lane::wait, "wait",
                  {.peer = first.peer, .chunk = static_cast<std::int32_t>(first.tag.chunk)});
  if (spin(group, question.ready)) return;
  const Nanoseconds start = base::now();
  Patience patience(group.policy(), {}, start);
  std::uint64_t moved = question.moves == nullptr ? 0 : *question.moves;
  Nanoseconds nap_from = start + group.policy().yield;
  bool others_moved = false;
  const auto wakes = [&] {
    return question.ready() || (others_moved = advance_others(group, question));
  };
  PublishedWait published(group, PublishedWait::Blocks::yes);
  published.publish(first);
  while (!question.ready()) {
    group.raise_if_failed();
    others_moved = advance_others(group, question) || others_moved;
    const Nanoseconds now = base::now();
    const Nanoseconds due = question.due();
    if (due != kNever) patience.bear_until(due);
    if (question.moves != nullptr && *question.moves != moved) {
      moved = *question.moves;
      patience.renew(now);
    }
    if (std::exchange(others_moved, false)) nap_from = now + group.policy().yield;
    if (patience.must_poll_peers(now)) {
      const Awaited awaited = question.awaited();
      published.publish(awaited);
      const auto ready = [&] { return goes_on(question, awaited); };
      group.examine(&awaited, ready);
      if (patience.is_over(now) && !question.ready()) group.give_up(awaited, ready);
    }
    const Nanoseconds wake_at = now + nap_of(patience.wake_at() - now);
    if (due != kNever) {
      sit_out(group, due, wake_at, wakes);
    } else if (now < nap_from) {
      ::sched_yield();
    } else {
      group.sleep_until(wake_at, wakes);
    }
  }
}

}  // namespace plait::comm
