// Other processes, and forks of this one.
#pragma once

#include <sys/types.h>

#include "base/fd.h"

namespace plait::base {

// A descriptor of this process that becomes readable when it ends; passed to another process, it
// names this one without doubt, which a pid does not (the kernel re-uses pids). Invalid on kernels
// before 5.3.
Fd open_self_pidfd();

// Whether the process behind `pidfd` has ended; where there is no pidfd, whether `pid` is unused.
bool has_ended(const Fd& pidfd, pid_t pid);

// "running", "stopped", ... as the kernel tells it; empty when it does not.
const char* state_of(pid_t pid);

// 0 when the kernel does not tell it.
pid_t parent_of(pid_t pid);

// Knows a forked child from the process that made it, at the price of one load: it sits in a page
// that the kernel wipes in children.
class ForkGuard {
 public:
  ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
  ~ForkGuard();

  bool in_child() const { return *word_ == 0; }

 private:
  int* word_;
};

}  // namespace plait::base
