// Other processes, and forks of this one.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "base/fd.h"

namespace plait::base {

// When the process was started, in kernel ticks since boot. Together with a pid it identifies one
// process. 0 if there is no such process, or the time is unknown.
std::uint64_t start_of(pid_t pid);

// True if the process that was started at `start` as `pid` has ended. `pidfd`, if there is one,
// saves reading /proc. If it reports an end, that is checked, because the host program may have
// closed it and have another file under its number by now.
bool has_ended(const Fd& pidfd, pid_t pid, std::uint64_t start);

// A descriptor for may_be_ending(); invalid where /proc doesn't show the process.
Fd open_memory_size(pid_t pid);

// Tells of an end before has_ended() does: a process gives up its memory, closes its sockets, and
// only then has ended. True, too, for a process whose first thread has ended before the others.
bool may_be_ending(const Fd& memory_size);

// "running", "stopped", ... as the kernel reports it; empty if unknown.
const char* state_of(pid_t pid);

// 0 if unknown.
pid_t parent_of(pid_t pid);

// Tells a forked child from the process that made the guard, at the cost of one load from a page
// that the kernel wipes in children. A copy belongs to the process that made the original.
class ForkGuard {
 public:
  ForkGuard();

  // Memory ordering: relaxed, because no other thread changes the word while this process reads it.
  bool in_child() const { return word_->load(std::memory_order_relaxed) != maker_; }

 private:
  const std::atomic<int>* word_;
  int maker_;
};

}  // namespace plait::base
