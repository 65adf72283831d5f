// How a rank waits: spin, then pause, then yield, then sleep.
//
// - A chunk that is already on its way takes 0.1 to 20 µs: spinning (with the processor's pause
//   instruction, so that a hyper-thread neighbour gets on) sees it first.
// - One that takes longer is probably late because its rank was not running: give the core away.
//   sched_yield costs about 0.3 µs and finds the chunk within a scheduler's turn.
// - After that it is a matter of a product or a network: sleep on a futex, which the poster wakes
//   (about 5 µs, and 50 µs on a virtual machine), and poll the peers' health meanwhile.
//
// If there are more ranks than processors, spinning keeps the very rank from running that is waited
// for, so that step is left out.
#pragma once

#include <functional>
#include <string_view>

#include "base/clock.h"

namespace plait::comm {

class Group;
struct Awaited;

struct WaitPolicy {
  int polls = 64;  // without any pause, before all that
  base::Nanoseconds spin = 20 * base::kMicrosecond;
  base::Nanoseconds yield = 200 * base::kMicrosecond;

  // How long one rank waits for another in a call, and in each step of connecting. While ranks
  // connect, the second value takes the place of `timeout`. CommunicatorOptions::timeout says why
  // they differ.
  base::Nanoseconds timeout = 600 * base::kSecond;
  base::Nanoseconds connect_timeout = 60 * base::kSecond;

  // How long another host may take to acknowledge data before it counts as lost.
  base::Nanoseconds lost_after = 1500 * base::kMillisecond;

  // Called now and then in all waits, those for connecting too. Advances what this thread has
  // started in other communicators, and calls CommunicatorOptions::interrupted. May be empty.
  std::function<void()> interrupted = {};

  // The way to what the core knows of this thread, for plugins too, which have copies of the core's
  // variables: advances what it has started in other communicators, as advance_started() does, and
  // shows there that it waits for this in a group (null: no more). May be empty.
  std::function<bool()> advance = {};
  std::function<void(const Group& group, const Awaited* awaited)> show_wait = {};

  bool oversubscribed = false;  // more ranks than processors
};

// The rest of a timeout that began at `began_at`. It is never 0, so that a chunk that has arrived
// already is still found.
base::Nanoseconds left_of(base::Nanoseconds timeout, base::Nanoseconds began_at);

// "spin=20us,yield=200us", either part alone too; refuses anything else with a sentence.
void read_wait_policy(std::string_view text, WaitPolicy& policy);

// The defaults with PLAIT_WAIT, PLAIT_TIMEOUT and PLAIT_LOST_AFTER applied.
WaitPolicy wait_policy_from_environment();

}  // namespace plait::comm
