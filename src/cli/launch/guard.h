// A small process that outlives `plait run` if that is killed, and then ends what it had started.
//
// The ranks themselves die with their parent (PR_SET_PDEATHSIG); what they started, such as the
// python below a shell script, does not, and would go on holding memory and processors.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"

namespace plait::cli {

class Guard {
 public:
  // `job` as in PLAIT_JOB: whoever carries it in the environment is one of ours. Only who has left
  // the ranks' groups and cleared its environment cannot be found.
  explicit Guard(const std::string& job);
  Guard(Guard&&) = delete;
  ~Guard();  // dismisses the guard: all has ended in order

  // A child that leads a process group, before it is waited for.
  void watch(pid_t leader);

  pid_t pid() const { return pid_; }

  // Somebody has ended the guard, and its number has been waited for: it is no more ours to kill.
  void bury() { pid_ = -1; }

 private:
  base::Fd line_;  // the guard learns of our death from its closing
  pid_t pid_ = -1;
};

}  // namespace plait::cli
