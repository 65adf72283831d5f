// Other processes, and forks of this one.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "base/fd.h"

namespace plait::base {

// A descriptor of this process that becomes readable when it ends; passed to another process, it
// names this one without doubt, which a pid does not (the kernel re-uses pids). Invalid on kernels
// before 5.3.
Fd open_self_pidfd();

// When the process was started, in the kernel's ticks since the host was: with it a pid names one
// process only. 0 where there is none, or it can't be told.
std::uint64_t start_of(pid_t pid);

// Whether the process that was started at `start` as `pid` has ended. `pidfd`, where there is one,
// spares a look into /proc; what it says of an end is checked, since the host program may have
// closed it, and have another file under its number by now.
bool has_ended(const Fd& pidfd, pid_t pid, std::uint64_t start);

// "running", "stopped", ... as the kernel tells it; empty when it does not.
const char* state_of(pid_t pid);

// 0 when the kernel does not tell it.
pid_t parent_of(pid_t pid);

// Knows a forked child from the process that made it, at the price of one load: of a word in a page
// that the kernel wipes in children. A copy stands for the process that made the original.
class ForkGuard {
 public:
  ForkGuard();

  // Relaxed: no other thread changes what this process reads.
  bool in_child() const { return word_->load(std::memory_order_relaxed) != maker_; }

 private:
  const std::atomic<int>* word_;
  int maker_;
};

}  // namespace plait::base
